/* SPDX-License-Identifier: Apache-2.0
   Draws the charts in the colours of the theme, and keeps the navigation where the reader is. */
"use strict";

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const THEMES = ["auto", "light", "dark"];
const root = document.documentElement;
const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
const coarse = window.matchMedia("(pointer: coarse)").matches;
const specs = JSON.parse(document.getElementById("charts").textContent);
const plots = [];  // a function for each chart that draws it
let printing = false;

function isDark() {
  const chosen = root.dataset.theme;
  return !printing && (chosen === "dark" || (chosen !== "light" && systemDark.matches));
}

function colour(name) {
  return getComputedStyle(root).getPropertyValue(name).trim();
}

function template() {
  const axis = {gridcolor: colour("--grid"), linecolor: colour("--line"),
                zerolinecolor: colour("--line"), tickcolor: colour("--line"),
                title: {font: {size: 12.5}}};
  return {layout: {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: {family: FONT, size: 12, color: colour("--ink")}, xaxis: axis, yaxis: axis,
    hoverlabel: {bgcolor: colour("--card"), bordercolor: colour("--line"), align: "left",
                 font: {family: FONT, size: 12.5, color: colour("--ink")}},
    modebar: {bgcolor: "rgba(0,0,0,0)", color: colour("--soft"),
              activecolor: colour("--accent")},
    legend: {bgcolor: "rgba(0,0,0,0)", font: {size: 12}},
  }};
}

/* What has no colour of its own is drawn in that of the text. */
function inked(trace) {
  const ink = colour("--ink"), copy = {...trace};
  if (trace.meta === "ink") copy.marker = {...trace.marker, color: ink};
  if (trace.error_x && !trace.error_x.color) copy.error_x = {...trace.error_x, color: ink};
  return copy;
}

function drawPlot(div, data, layout) {
  // Named one by one: among plotly's own choice is a button that sends the data away.
  const config = {displaylogo: false, responsive: true, doubleClick: "reset", plotlyServerURL: "",
                  displayModeBar: "hover",
                  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]]};
  return Plotly.react(div, data.map(inked), {
    ...layout, autosize: true, template: template(), dragmode: coarse ? false : "zoom"}, config);
}

function prepare(spec, number) {
  const div = document.getElementById(`chart-${number}`);
  if (spec.kind === "timeline") {
    const timeline = new Timeline(div, spec);
    return () => timeline.draw();
  }
  return () => drawPlot(div, spec.data, structuredClone(spec.layout));
}

/* One chart after the other, so that the page answers meanwhile. */
async function drawAll() {
  for (let number = 0; number < specs.length; ++number) {
    await new Promise((resume) => setTimeout(resume));
    plots.push(prepare(specs[number], number));
    await plots[number]();
  }
  root.dataset.ready = "yes";
}

function redraw() {
  for (const draw of plots) draw();
}

function remember(theme) {
  try {
    localStorage.setItem("spdkfac-theme", theme);
  } catch (error) {
    // A page from a file may have no storage; the choice then lasts as long as the page.
  }
}

function recalled() {
  try {
    return localStorage.getItem("spdkfac-theme");
  } catch (error) {
    return null;
  }
}

function setTheme(theme) {
  root.dataset.theme = THEMES.includes(theme) ? theme : "auto";
  document.getElementById("theme").textContent = `Theme: ${root.dataset.theme}`;
}

function followReader() {
  const links = new Map([...document.querySelectorAll("nav li a")].map(
      (link) => [link.hash.slice(1), link]));
  const sections = [...document.querySelectorAll("main > section")];
  const mark = () => {
    const line = 0.3 * window.innerHeight;
    const current = sections.filter((section) => section.getBoundingClientRect().top < line).pop()
        || sections[0];
    for (const [id, link] of links) {
      const here = current && id === current.id;
      if (here && !link.classList.contains("here")) {
        const list = link.closest("ul");
        list.scrollLeft = link.offsetLeft - list.clientWidth / 2 + link.clientWidth / 2;
      }
      link.classList.toggle("here", here);
      if (here) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  };
  document.addEventListener("scroll", mark, {passive: true});
  mark();
}

function printed(now) {
  printing = now;
  root.classList.toggle("printing", now);
  for (const table of document.querySelectorAll("details.numbers")) {
    if (now) {
      table.dataset.was = table.open ? "open" : "";
      table.open = true;
    } else {
      table.open = table.dataset.was === "open";
    }
  }
  redraw();
}

setTheme(recalled());
document.getElementById("theme").addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length];
  setTheme(next);
  remember(next);
  redraw();
});
systemDark.addEventListener("change", redraw);
window.addEventListener("beforeprint", () => printed(true));
window.addEventListener("afterprint", () => printed(false));
followReader();
drawAll();
