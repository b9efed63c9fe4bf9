// The console's own script: keys, the menu of small screens, the tick of live parts, charts.

import { drawCharts } from "./charts.js";

const TICK_MS = 5000;
const SLOW_TICKS = 6;
const GO_MS = 1500;

/** True while letters are meant for a field. */
function isTyping(target) {
  return target.closest("input, textarea, select, [contenteditable]") !== null;
}

function toFilter() {
  const field = document.querySelector("[data-filter]");
  if (field) {
    field.focus();
    field.select();
  }
  return field !== null;
}

function leave(target) {
  if (target.matches("[data-filter]") && target.value) {
    target.value = "";
    target.dispatchEvent(new Event("input", { bubbles: true }));
    return;
  }
  target.blur();
  document.documentElement.classList.remove("going");
}

/** The next or former row of the first table whose rows lead somewhere. */
function moveRow(step) {
  const links = [...document.querySelectorAll(".rows tbody tr")]
    .map((row) => row.querySelector("a[href]"))
    .filter((link) => link !== null);
  const at = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
  const next = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step];
  next?.focus();
}

let goingUntil = 0;
let ticks = 0;

function follow(key) {
  for (const link of document.querySelectorAll("nav a[data-key]")) {
    if (link.dataset.key === key) {
      link.click();
    }
  }
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) {
    return;
  }
  if (event.key === "Escape") {
    leave(event.target);
    return;
  }
  if (isTyping(event.target)) {
    return;
  }
  if (Date.now() < goingUntil) {
    goingUntil = 0;
    document.documentElement.classList.remove("going");
    follow(event.key);
    event.preventDefault();
    return;
  }
  const actions = {
    "/": toFilter,
    "?": () => document.getElementById("keys").showModal(),
    j: () => moveRow(1),
    k: () => moveRow(-1),
    g: () => {
      goingUntil = Date.now() + GO_MS;
      document.documentElement.classList.add("going");
      setTimeout(() => document.documentElement.classList.remove("going"), GO_MS);
    },
  };
  const action = actions[event.key];
  if (action) {
    action();
    event.preventDefault();
  }
}

function onClick(event) {
  const opener = event.target.closest("[data-open]");
  if (opener) {
    document.getElementById(opener.dataset.open).showModal();
  }
  const menu = event.target.closest(".menu-button");
  if (menu) {
    const isOpen = menu.closest(".side").classList.toggle("open");
    menu.setAttribute("aria-expanded", String(isOpen));
  }
}

/** A plan is confirmed once, however often the button is pressed. */
function onSubmit(event) {
  if (event.target.matches("[data-once]")) {
    for (const button of event.target.querySelectorAll("button")) {
      button.disabled = true;
    }
  }
}

/** Live parts ask again at each tick, but not in a hidden tab nor under someone's hands. */
function tick() {
  const isBusy = document.activeElement?.closest("#live input, #live select, #live textarea");
  if (document.visibilityState === "visible" && !isBusy) {
    document.body.dispatchEvent(new CustomEvent("tick"));
    ticks += 1;
    if (ticks % SLOW_TICKS === 0) {
      document.body.dispatchEvent(new CustomEvent("slow-tick"));
    }
    drawCharts();
  }
}

/** What was told once leaves the address, which may be shared. */
function forgetTold() {
  const here = new URL(location.href);
  if (here.searchParams.has("done")) {
    here.searchParams.delete("done");
    history.replaceState(history.state, "", here);
  }
}

document.addEventListener("keydown", onKey);
document.addEventListener("click", onClick);
document.addEventListener("submit", onSubmit);
setInterval(tick, TICK_MS);
forgetTold();
drawCharts();
