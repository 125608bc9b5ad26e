// Search on pages that are opened from a folder: browsers run no workers there, so a hidden frame does the work.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.waiting = [];
      frame.onload = () => {
        const inside = frame.contentWindow;
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        const script = frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = () => {
          this.postMessage = (data) => inside.dispatchEvent(new MessageEvent("message", { data }));
          this.waiting.forEach(this.postMessage);
        };
        frame.contentDocument.head.append(script);
      };
      document.documentElement.append(frame);
    }
    postMessage(data) {
      this.waiting.push(data);
    }
  };
  window.Worker = window.IFrameWorker;
}
