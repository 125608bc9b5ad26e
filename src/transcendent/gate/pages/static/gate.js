// The one script of the gate's pages. They work without it; it adds keys, leases and parts that load later.
"use strict";

const opened = performance.now();
const sent = new WeakSet();

for (const each of document.querySelectorAll("[data-without-script]")) each.hidden = true;

document.addEventListener("submit", (event) => {
  if (sent.has(event.target)) event.preventDefault(); // a second press must not answer for the next item
  sent.add(event.target);
});

// Of a page that a browser had kept, forms were sent before, and its person may have signed out since.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

document.addEventListener("keydown", (event) => {
  const on = event.target;
  if (on.matches("input, textarea, select")) {
    if (event.key === "Escape") on.blur();
    return;
  }
  // A key that was meant for the page before must not answer here.
  if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || performance.now() - opened < 200) return;
  if (event.key === "Enter" && on.closest("a, button, summary")) return;
  const meant = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (!meant || meant.disabled) return;
  event.preventDefault();
  if (meant.tagName === "BUTTON") meant.click();
  else if (meant.tagName === "DETAILS") {
    meant.open = !meant.open;
    if (meant.open) meant.scrollIntoView();
  } else meant.focus();
});

async function load(part) {
  try {
    const answer = await fetch(part.dataset.load);
    if (answer.ok && !answer.redirected) part.innerHTML = await answer.text();
    for (const each of part.querySelectorAll("[data-without-script]")) each.hidden = true;
  } catch {
    // The page is being left, or the gate cannot be reached: what is there stays.
  }
  part.dataset.loaded = "";
}

for (const part of document.querySelectorAll("[data-load]")) load(part);

function keepLease(bar) {
  const lease = Number(bar.max);
  let ends = performance.now() + 1000 * bar.value;
  let lost = false;
  const said = document.getElementById("lost");

  function say(why) {
    said.textContent = why;
    said.hidden = !why;
  }
  function lose(why) {
    lost = true;
    bar.classList.add("lost");
    bar.value = 0;
    for (const each of document.querySelectorAll("[data-held]")) each.disabled = true;
    say(`This is no longer yours: ${why || "it does not wait any more."}`);
  }
  async function renew() {
    if (lost || document.hidden) return;
    try {
      const body = new URLSearchParams({ csrf: bar.dataset.csrf });
      const answer = await fetch(bar.dataset.renew, { method: "POST", body });
      if (answer.redirected) return lose("you are signed out.");
      if (!answer.ok) throw new Error(answer.statusText);
      const { left, lost: why } = await answer.json();
      if (left === undefined) return lose(why);
      ends = performance.now() + 1000 * left;
      say("");
    } catch {
      say("The gate cannot be reached: this stays yours only until the bar is empty.");
    }
  }
  setInterval(() => {
    if (!lost) bar.value = Math.max(0, (ends - performance.now()) / 1000);
  }, 1000);
  setInterval(renew, Math.min(20_000, 1000 * lease / 3));
  document.addEventListener("visibilitychange", renew);
}

for (const bar of document.querySelectorAll("progress[data-renew]")) keepLease(bar);

// A part of a page that shows what changes: it is fetched again while somebody can see it.
(() => {
  const part = document.querySelector("[data-refresh]");
  if (!part) return;
  const stale = document.getElementById("stale");
  const growOld = () => {
    stale.hidden = false;
    for (const each of part.querySelectorAll("[data-live]")) {
      each.textContent = "not known";
      each.classList.remove("good");
    }
  };
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
      growOld();
    }
  };
  setInterval(refresh, 1000 * part.dataset.refresh);
  document.addEventListener("visibilitychange", refresh);
})();
