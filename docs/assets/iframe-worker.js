// SPDX-License-Identifier: Apache-2.0
// Browsers start no workers for pages that are opened as files, and the search is a worker. Here it
// runs in a hidden frame instead.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.ready = new Promise((resolve) => { this.frame.onload = resolve; });
      const inside = this.frame.contentWindow;
      window.addEventListener("message", (event) => {
        if (event.source !== inside) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      });
      const page = inside.document;
      page.open();
      page.write(`<!doctype html><body><script>
        postMessage = parent.postMessage.bind(parent);
        importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done) => {
          const script = document.createElement("script");
          script.src = url; script.onload = done; document.body.append(script);
        })), Promise.resolve());
        <\/script><script src="${url}"><\/script></body>`);
      page.close();
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() { this.frame.remove(); }
  }
  window.Worker = IFrameWorker;
}
