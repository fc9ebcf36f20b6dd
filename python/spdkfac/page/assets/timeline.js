/* SPDX-License-Identifier: Apache-2.0
   The timeline: bars of events by rank and lane, merged to what the window can show. */
"use strict";

const RANKS_AT_ONCE = 8;
const MOST_BARS = 8000;  // more make zooming slow
const ROW_PIXELS = 22;
const GAP_PIXELS = 34;   // for the words above a block of rows
const TIME_AXIS_PIXELS = 54;
const LANES = ["compute", "channel"];

function unpack(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Kind(bytes.buffer);
}

function unpackEvents(packed) {
  if (!packed) return null;
  return {
    rows: unpack(packed.rows, Uint32Array), categories: unpack(packed.categories, Uint8Array),
    names: unpack(packed.names, Uint32Array), starts: unpack(packed.starts, Float64Array),
    durations: unpack(packed.durations, Float32Array), counts: unpack(packed.counts, Uint32Array),
    table: packed.table,
  };
}

function lastEnd(events) {
  let end = 0;
  for (let i = 0; events && i < events.rows.length; ++i) {
    end = Math.max(end, events.starts[i] + events.durations[i]);
  }
  return end;
}

/* Bars between two times: neighbours that begin in one pixel of a row and are shorter become one,
   in the category that takes most of its time. */
function barsBetween(events, placeOfRow, from, to, pixel, categoryCount) {
  const bars = [];
  let group = null;
  for (let i = 0; i < events.rows.length; ++i) {
    const place = placeOfRow.get(events.rows[i]);
    const start = events.starts[i], length = events.durations[i];
    if (place === undefined || start > to || start + length < from) continue;
    const cell = length < pixel ? Math.floor(start / pixel) : -1;
    if (group && cell >= 0 && group.cell === cell && group.place === place) {
      group.end = Math.max(group.end, start + length);
      group.count += events.counts[i];
      group.time[events.categories[i]] += length;
      continue;
    }
    group = {place, cell, start, end: start + length, count: events.counts[i],
             category: events.categories[i], name: events.table[events.names[i]],
             time: new Float64Array(cell >= 0 ? categoryCount : 0)};
    if (cell >= 0) group.time[events.categories[i]] += length;
    bars.push(group);
  }
  for (const bar of bars) {
    if (bar.cell >= 0) bar.category = bar.time.indexOf(Math.max(...bar.time));
  }
  return bars;
}

function plotText(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function timeText(seconds) {
  if (seconds === 0) return "0 s";
  const [unit, length] = seconds >= 1 ? ["s", 1] : seconds >= 1e-3 ? ["ms", 1e-3] : ["µs", 1e-6];
  return `${+(seconds / length).toPrecision(4)} ${unit}`;
}

class Timeline {
  constructor(div, spec) {
    this.div = div;
    this.spec = spec;
    this.view = spec.first;
    this.page = 0;
    this.range = null;
    this.load();
    this.addControls();
  }

  load() {
    const view = this.spec.views[this.view];
    this.blocks = [["forecast", unpackEvents(view.forecast)],
                   ["replay", unpackEvents(view.replay)],
                   [this.spec.real, unpackEvents(view.measured)]].filter(([, events]) => events);
    const ranks = new Set();
    for (const [, events] of this.blocks) for (const row of events.rows) ranks.add(row >> 1);
    this.ranks = [...ranks].sort((one, other) => one - other);
    this.end = Math.max(...this.blocks.map(([, events]) => lastEnd(events))) || 1e-6;
    this.unit = this.end >= 10 ? ["s", 1] : this.end >= 1e-3 ? ["ms", 1e-3] : ["µs", 1e-6];
  }

  select(texts, change) {
    const select = document.createElement("select");
    for (const text of texts) select.add(new Option(text));
    select.addEventListener("change", () => change(select.selectedIndex));
    return select;
  }

  addControls() {
    const bar = document.createElement("div");
    bar.className = "controls";
    if (this.spec.views.length > 1) {
      const views = this.select(this.spec.views.map((view) => view.label), (index) => {
        this.view = index;
        this.page = 0;
        this.range = null;
        this.load();
        this.addPages();
        this.draw();
      });
      views.selectedIndex = this.view;
      views.setAttribute("aria-label", "Algorithm");
      bar.append(views);
    } else {
      const name = document.createElement("strong");
      name.textContent = this.spec.views[0].label;
      bar.append(name);
    }
    this.pages = document.createElement("span");
    this.words = document.createElement("span");
    this.words.className = "merged";
    bar.append(this.pages, this.words);
    this.div.before(bar);
    this.addPages();
  }

  addPages() {
    this.pages.replaceChildren();
    if (this.ranks.length <= RANKS_AT_ONCE) return;
    const texts = [];
    for (let first = 0; first < this.ranks.length; first += RANKS_AT_ONCE) {
      const some = this.ranks.slice(first, first + RANKS_AT_ONCE);
      texts.push(`ranks ${some[0]} to ${some[some.length - 1]}`);
    }
    const select = this.select(texts, (index) => {
      this.page = index;
      this.draw();
    });
    select.setAttribute("aria-label", "Ranks");
    this.pages.append(select);
  }

  /* The bars of all blocks, merged so far that they can be drawn. */
  bars(placeOfRow) {
    const [from, to] = this.range || [0, this.end];
    let pixel = (to - from) / Math.max(200, this.div.clientWidth - 150);
    for (;;) {
      const found = this.blocks.map(([, events]) => barsBetween(
          events, placeOfRow, from, to, pixel, this.spec.categories.length));
      const total = found.reduce((sum, bars) => sum + bars.length, 0);
      if (total <= MOST_BARS) return [found, pixel];
      pixel *= 2;
    }
  }

  traces(found, pixel) {
    const length = this.unit[1], traces = [];
    found.forEach((bars, block) => {
      this.spec.categories.forEach(([category, colour], index) => {
        const some = bars.filter((bar) => bar.category === index);
        if (!some.length) return;
        traces.push({
          type: "bar", orientation: "h", hoverinfo: "text", width: 0.8,
          xaxis: "x", yaxis: block ? "y2" : "y", marker: {color: colour, line: {width: 0}},
          base: some.map((bar) => bar.start / length),
          x: some.map((bar) => Math.max(bar.end - bar.start, 0.7 * pixel) / length),
          y: some.map((bar) => bar.place),
          hovertext: some.map((bar) => {
            const name = bar.count > 1 ? `${bar.count} events, mostly ${category}` : bar.name;
            return `<b>${plotText(name)}</b><br>${plotText(category)}<br>` +
                   `start ${timeText(bar.start)}<br>duration ${timeText(bar.end - bar.start)}`;
          }),
        });
      });
    });
    return traces;
  }

  layout(ranks) {
    const rows = ranks.length * LANES.length;
    const block = rows * ROW_PIXELS, inner = this.blocks.length * (block + GAP_PIXELS);
    const axis = {
      tickvals: [...Array(rows).keys()], range: [rows - 0.5, -0.5], fixedrange: true,
      ticktext: ranks.flatMap((rank) => LANES.map((lane) => `rank ${rank} ${lane}`)),
      automargin: true, showgrid: false, zeroline: false, ticks: "outside", ticklen: 6,
      tickcolor: "rgba(0,0,0,0)", tickfont: {size: 11},
    };
    const layout = {
      height: inner + TIME_AXIS_PIXELS, margin: {l: 12, r: 18, t: 0, b: TIME_AXIS_PIXELS},
      barmode: "overlay", bargap: 0, showlegend: false, hovermode: "closest", annotations: [],
      shapes: [],
      xaxis: {title: {text: `time in the iteration (${this.unit[0]})`, standoff: 8},
              zeroline: false, anchor: "free", position: 0,
              range: (this.range || [0, 1.01 * this.end]).map((time) => time / this.unit[1])},
    };
    this.blocks.forEach(([word], place) => {
      const top = 1 - (place * (block + GAP_PIXELS) + GAP_PIXELS) / inner;
      const domain = [Math.max(0, top - block / inner), top];
      layout[place ? "yaxis2" : "yaxis"] = {...axis, domain};
      layout.annotations.push({
        text: `<b>${word}</b>`, xref: "paper", yref: "paper", x: 0, y: top, xanchor: "left",
        yanchor: "bottom", showarrow: false, font: {size: 13}});
      layout.shapes.push({
        type: "rect", xref: "paper", yref: "paper", x0: 0, x1: 1, y0: top - block / inner, y1: top,
        line: {width: 1, color: "rgba(128,128,128,0.35)"}, fillcolor: "rgba(128,128,128,0.06)",
        layer: "below"});
    });
    return layout;
  }

  draw() {
    const first = this.page * RANKS_AT_ONCE;
    const ranks = this.ranks.slice(first, first + RANKS_AT_ONCE);
    const placeOfRow = new Map();
    ranks.forEach((rank, place) => LANES.forEach((_, lane) => {
      placeOfRow.set(2 * rank + lane, 2 * place + lane);
    }));
    const [found, pixel] = this.bars(placeOfRow);
    const merged = found.flat().filter((bar) => bar.count > 1);
    const events = merged.reduce((sum, bar) => sum + bar.count, 0);
    this.words.textContent = events
        ? `${events.toLocaleString("en")} events too short to see here are drawn as ` +
          `${merged.length.toLocaleString("en")} bars`
        : "";
    const layout = this.layout(ranks);
    this.div.style.height = `${layout.height}px`;
    const isNew = !this.div.data;
    const drawn = drawPlot(this.div, this.traces(found, pixel), layout);
    if (isNew) this.div.on("plotly_relayout", (change) => this.zoomed(change));
    return drawn;
  }

  zoomed(change) {
    if (change["xaxis.autorange"]) {
      this.range = null;
    } else if ("xaxis.range[0]" in change) {
      const ends = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      this.range = ends.map((value) => value * this.unit[1]);
    } else if (Array.isArray(change["xaxis.range"])) {
      this.range = change["xaxis.range"].map((value) => value * this.unit[1]);
    } else {
      return;
    }
    this.draw();
  }
}
