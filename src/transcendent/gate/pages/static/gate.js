// The one script of the gate's pages. They work without it; it adds keys, leases and parts that load later.
"use strict";

// A part of a page that shows what changes: it is fetched again while somebody can see it.
(() => {
  const part = document.querySelector("[data-refresh]");
  if (!part) return;
  const stale = document.getElementById("stale");
  const refresh = async () => {
    if (document.hidden || !part.hasAttribute("data-refresh")) return;
    try {
      const answer = await fetch(location.pathname, { redirect: "error" });
      if (!answer.ok) throw new Error("no page");
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("#main > div:not([id])");
      const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
      part.replaceChildren(...fresh.childNodes);
      if (!fresh.hasAttribute("data-refresh")) part.removeAttribute("data-refresh");
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
      stale.hidden = true;
    } catch {
      stale.hidden = false;
    }
  };
  setInterval(refresh, 1000 * part.dataset.refresh);
  document.addEventListener("visibilitychange", refresh);
})();
