// Search runs in a worker, and browsers start none for a page that is opened as a file: there an unseen frame does its work.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.addEventListener("answer", (answer) =>
        this.dispatchEvent(new MessageEvent("message", { data: answer.detail })),
      );
      this.ready = new Promise((resolve) => this.frame.addEventListener("ready", resolve, { once: true }));
      document.body.append(this.frame);
      const page = this.frame.contentDocument;
      page.open();
      page.write(
        '<script>postMessage = (detail) => frameElement.dispatchEvent(new CustomEvent("answer", { detail }));</script>' +
          `<script src="${new URL(url, document.baseURI)}"></script>` +
          '<script>frameElement.dispatchEvent(new Event("ready"));</script>',
      );
      page.close();
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
