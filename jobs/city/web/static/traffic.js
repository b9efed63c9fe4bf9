// The traffic user's page: flow on the map, curves of the day, alarms, counts at a camera.
import { CityMap, DAY_MS, alarmRow, at, curve, dayOf, follow, hourTicks, make, newId, none, redrawn, send, shown, timeOf, whole } from "/static/city.js";

const checkpoints = await (await fetch("/checkpoints.json")).json();
const places = new Map(checkpoints.map((c) => [c.checkpoint_id, c.place]));
const select = at("places");
select.append(make("option", { value: "*" }, "all cameras"));
for (const c of checkpoints) select.append(make("option", { value: c.checkpoint_id }, shown(c.place)));
const map = new CityMap(at("map"), checkpoints, { onChoose: choose });
select.addEventListener("change", () => map.choose(select.value));

function choose(id) {
  select.value = id;
  map.choose(id);
  at("count").scrollIntoView({ behavior: "smooth", block: "nearest" });
}

let start = 0; // the day's first millisecond, once known
const day = (ms) => { start ||= dayOf(ms); return { from: start, to: start + DAY_MS, ticks: hourTicks(start) }; };
const hours = { from: 0, to: 24, ticks: [0, 6, 12, 18, 24].map((h) => [h, `${h}:00`]) };

const clockOf = (hour) => `${Math.floor(hour)}:${String(Math.round((hour % 1) * 60)).padStart(2, "0")}`;

const said = { flow: null, latency: null, quality: null, counts: {} };

function paintFlow() {
  const body = said.flow;
  if (!body?.totals.length) return at("c-flow").replaceChildren(none("No passage yet."));
  curve(at("c-flow"), { series: [{ points: body.totals, area: true }], ...day(body.totals[0][0]), label: "Vehicles per ten minutes" });
}

function paintLatency() {
  const rows = said.latency ?? [];
  if (!rows.length) return at("c-latency").replaceChildren(none("Nothing has been stored yet."));
  const points = rows.map((r) => [r.hour, r.mean_s, clockOf(r.hour)]);
  curve(at("c-latency"), { series: [{ points, area: true, name: "mean" }], ...hours, unit: " s", label: "Latency over the day" });
}

function paintQuality() {
  const rows = said.quality ?? [];
  if (!rows.length) return at("c-quality").replaceChildren(none("No interval has closed yet."));
  const points = (key) => rows.map((r) => [r.bucket_ms, r[key]]);
  curve(at("c-quality"), { series: [{ points: points("produced"), area: true, name: "captured" }, { points: points("consumed"), name: "recognised" }], ...day(rows[0].bucket_ms), label: "Captured and recognised per ten minutes" });
}

function paintCounts() {
  const cards = Object.entries(said.counts).map(([id, asked]) => {
    const stop = make("button", { class: "plain-button", type: "button" }, "Stop");
    stop.addEventListener("click", () => send({ instruction_id: id, action: "stop" }, at("count-problem")));
    const place = asked.checkpoint_id === "*" ? "all cameras" : places.get(asked.checkpoint_id) ?? asked.checkpoint_id;
    const sum = asked.totals.reduce((n, [, count]) => n + count, 0);
    const what = asked.what === "vehicle" ? "vehicles" : "people";
    const chart = make("div", { class: "chart", "data-height": "92" });
    const card = make("div", { class: "counted", "data-count": shown(id) },
      make("div", { class: "name" }, make("b", {}, shown(place)), make("span", { class: "soft" }, `${whole(sum)} ${what}, every ${asked.minutes} min`), make("span", { class: "grow" }), stop), chart);
    return [card, chart, asked];
  });
  at("counts").replaceChildren(...cards.map(([card]) => card));
  for (const [, chart, asked] of cards) {
    if (!asked.totals.length) { chart.replaceChildren(make("span", { class: "soft" }, "Nobody yet.")); continue; }
    curve(chart, { series: [{ points: asked.totals }], ...day(asked.totals[0][0]), bars: true, label: "Passages" });
  }
}

for (const [id, paint] of [["c-flow", paintFlow], ["c-latency", paintLatency], ["c-quality", paintQuality], ["counts", paintCounts]]) {
  redrawn(at(id), paint);
}

function ramp(max) {
  const steps = [0, 1, 2, 3, 4, 5].map((n) => make("i", { class: `f${n}` }));
  at("ramp").replaceChildren("0", ...steps, whole(max));
}
ramp(8);

at("count").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  await send({
    instruction_id: newId("count"), action: "count", what: form.get("what"),
    checkpoint_id: form.get("checkpoint_id"), minutes: Number(form.get("minutes")),
  }, at("count-problem"));
});

follow("traffic", {
  clock(ms) { at("clock").textContent = ms ? timeOf(ms) : "--:--"; },
  flow(body) {
    said.flow = body;
    ramp(map.flow(body.counts));
    at("map-when").textContent = body.bucket_ms ? `vehicles, ${timeOf(body.bucket_ms)} to ${timeOf(body.bucket_ms + 600_000)}` : "";
    const now = Object.values(body.counts);
    at("t-now").textContent = whole(now.reduce((a, b) => a + b, 0));
    at("t-day").textContent = whole(body.totals.reduce((n, [, count]) => n + count, 0));
    at("t-cameras").replaceChildren(whole(now.length), make("small", {}, ` of ${checkpoints.length}`));
    paintFlow();
  },
  counts(body) { said.counts = body; paintCounts(); },
  latency(rows) {
    said.latency = rows;
    const last = rows.at(-1);
    at("t-latency").replaceChildren(...(last ? [String(Number(last.mean_s.toFixed(1))), make("small", {}, " s")] : ["–"]));
    paintLatency();
  },
  quality(rows) { said.quality = rows; paintQuality(); },
  ranking(rows) {
    const max = Math.max(1, ...rows.map((r) => r.abnormal));
    at("ranking").replaceChildren(...(rows.length ? rows.slice(0, 10).map((r) => {
      const bar = draw100(r.abnormal / max);
      return make("li", { class: r.suspect || r.abnormal / Math.max(1, r.total) > 0.2 ? "suspect" : "" },
        make("span", { class: "name" }, shown(r.place)), make("span", {}, `${whole(r.abnormal)} of ${whole(r.total)}`), bar);
    }) : [none("Nothing has failed yet.")]));
  },
  alarms(rows) {
    const open = rows.filter((a) => a.is_open).length;
    at("t-alarms").textContent = whole(open);
    at("t-alarms").className = open ? "bad" : "";
    at("alarm-count").textContent = rows.length ? `${open} open, ${rows.length - open} closed` : "";
    at("alarms").replaceChildren(...(rows.length ? rows.map(alarmRow) : [none("No alarm.")]));
  },
});

function draw100(share) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 100 6");
  svg.setAttribute("preserveAspectRatio", "none");
  for (const [kind, wide] of [["back", 100], ["share", 100 * share]]) {
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [name, value] of Object.entries({ class: kind, width: wide, height: 6, rx: 1.5 })) bar.setAttribute(name, value);
    svg.append(bar);
  }
  return svg;
}
