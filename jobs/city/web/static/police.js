// The police's page: an instruction, its growing track on the map, cloned plates, videos.
import { CityMap, alarmRow, at, follow, make, newId, none, send, shown, timeOf } from "/static/city.js";

const checkpoints = await (await fetch("/checkpoints.json")).json();
const by = new Map(checkpoints.map((c) => [c.checkpoint_id, c]));
const map = new CityMap(at("map"), checkpoints);
const form = at("watch");

let heads = {}, chosen = new URLSearchParams(location.search).get("track") ?? "", drawn = new Set();
const tracks = new Map();

function show(kind) {
  for (const part of form.querySelectorAll("[data-kind]")) part.hidden = part.dataset.kind !== kind;
}
for (const radio of form.elements.kind) radio.addEventListener("change", () => show(radio.value));

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const fields = new FormData(form), kind = fields.get("kind");
  const text = (name) => String(fields.get(name) ?? "").trim();
  const instruction = { instruction_id: newId("watch"), action: "watch" };
  if (kind === "plate") instruction.vehicle = { plate: text("plate") };
  if (kind === "looks") {
    instruction.vehicle = Object.fromEntries(["body_colour", "vehicle_type", "brand"].map((n) => [n, text(n)]).filter(([, v]) => v));
  }
  if (kind === "person") instruction.person = text("person");
  if (kind === "face") {
    instruction.face = text("face").split(/[\s,;]+/).filter(Boolean).map(Number);
    instruction.likeness = Number(text("likeness"));
  }
  if (await send(instruction, at("watch-problem"))) choose(instruction.instruction_id);
});

function choose(id) {
  chosen = id;
  drawn = new Set((tracks.get(id)?.points ?? []).map((p) => p.track_id));
  history.replaceState(null, "", `?track=${encodeURIComponent(id)}`);
  paintList();
  paintTrack();
}

const isPlate = (text) => /^[\u4e00-\u9fff][A-Z]/.test(text);
const name = (wanted) => make("span", { class: isPlate(wanted) ? "plate" : "who" }, shown(wanted));

function paintList() {
  const rows = Object.entries(heads).reverse();
  at("active").textContent = rows.length ? `${rows.filter(([, t]) => t.is_active).length} active` : "";
  at("instructions").replaceChildren(...(rows.length ? rows.map(([id, head]) => {
    const said = !head.is_active ? "ended" : head.is_taken ? "" : "sent";
    const pick = make("button", { class: "pick", type: "button" }, name(head.wanted), make("span", { class: "soft" }, said), make("span", { class: "total" }, String(head.total)));
    pick.addEventListener("click", () => choose(id));
    const row = make("li", { class: `${id === chosen ? "chosen" : ""} ${head.is_active ? "" : "ended"}`, "data-instruction": shown(id) }, pick);
    if (head.is_active) {
      const stop = make("button", { class: "plain-button", type: "button" }, "Stop");
      stop.addEventListener("click", () => send({ instruction_id: id, action: "stop" }, at("watch-problem")));
      row.append(stop);
    }
    return row;
  }) : [none("Nobody is watched.")]));
}

const RADIUS_KM = 6371;
function km(a, b) {
  const rad = (d) => (d * Math.PI) / 180;
  const half = Math.sin(rad(b.latitude - a.latitude) / 2) ** 2 +
    Math.cos(rad(a.latitude)) * Math.cos(rad(b.latitude)) * Math.sin(rad(b.longitude - a.longitude) / 2) ** 2;
  return 2 * RADIUS_KM * Math.asin(Math.sqrt(half));
}

function paintTrack() {
  const track = tracks.get(chosen);
  at("track-name").replaceChildren(...(track ? [name(track.wanted)] : ["Track"]));
  const points = track?.points ?? [];
  at("track-said").textContent = track ? `${track.total} ${track.total === 1 ? "capture" : "captures"}${track.is_active ? ", live" : ", ended"}` : "choose an instruction";
  map.track(points);
  const rows = points.map((point, n) => {
    const here = by.get(point.checkpoint_id), last = points[n - 1], there = last && by.get(last.checkpoint_id);
    const hours = last ? (point.capture_ms - last.capture_ms) / 3_600_000 : 0;
    const speed = here && there && here !== there && hours > 0 ? `${Math.round(km(there, here) / hours)} km/h` : "";
    const row = make("tr", { class: drawn.has(point.track_id) ? "" : "fresh", "data-point": shown(point.track_id) },
      make("td", {}, timeOf(point.capture_ms, true)),
      make("td", {}, shown(here?.place ?? point.checkpoint_id)),
      make("td", { class: "n small" }, last ? `${Math.round(hours * 60)} min` : ""),
      make("td", { class: "n small" }, speed));
    return row;
  });
  drawn = new Set(points.map((p) => p.track_id));
  at("points").replaceChildren(...rows.reverse());
}

at("analyse").addEventListener("submit", (event) => {
  event.preventDefault();
  const video = new FormData(event.target).get("video_id");
  send({ instruction_id: newId("video"), action: "analyse", video_id: video }, at("analyse-problem"));
});

paintList();
paintTrack();
follow("police", {
  clock(ms) { at("clock").textContent = ms ? timeOf(ms) : "--:--"; },
  tracks(body) {
    heads = body;
    if (!(chosen in heads) && Object.keys(heads).length) chosen = Object.entries(heads).sort((a, b) => b[1].total - a[1].total)[0][0];
    paintList();
    if (tracks.has(chosen)) paintTrack();
  },
  track(body, id) {
    const isFirst = !tracks.has(id);
    if (body) tracks.set(id, body);
    if (id !== chosen) return;
    if (isFirst) drawn = new Set(body?.points.map((p) => p.track_id));
    paintTrack();
  },
  alarms(rows) {
    const clones = rows.filter((a) => a.flow === "clones");
    at("clones").replaceChildren(...(clones.length ? clones.map(alarmRow) : [none("No cloned plate has been seen.")]));
  },
  videos(objects) {
    const videos = new Map();
    for (const o of objects) videos.set(o.video_id, [...(videos.get(o.video_id) ?? []), o]);
    at("videos").replaceChildren(...(videos.size ? [...videos].map(([video, found]) => {
      const clip = shown(found[0].clip_url).split("/").at(-1);
      const kinds = new Map();
      for (const o of found) kinds.set(o.kind, (kinds.get(o.kind) ?? 0) + 1);
      const said = [...kinds].map(([kind, n]) => `${n} ${shown(kind)}${n === 1 ? "" : "s"}`).join(", ");
      const card = make("div", { class: "video" }, make("b", {}, shown(video)), make("p", {}, said));
      if (clip) card.prepend(make("img", { src: `/clips/${encodeURIComponent(clip)}`, alt: `Summary of ${shown(video)}`, loading: "lazy" }));
      return card;
    }) : [none("No video has been analysed.")]));
  },
});
