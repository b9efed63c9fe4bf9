// Shared by both pages: the stream of sections, SVG, curves, the map. Texts go in as text only.

const SVG = "http://www.w3.org/2000/svg";
export const DAY_MS = 86_400_000;

export function make(tag, attributes = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
}

export function draw(tag, attributes = {}, ...inside) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
}

export const at = (id) => document.getElementById(id);
export const whole = (n) => Math.round(n).toLocaleString("en");
export const timeOf = (ms, seconds = false) => new Date(ms).toISOString().slice(11, seconds ? 19 : 16);

// Controls and marks that turn the direction of text would lie about a plate: they are shown as codes.
export const shown = (text) =>
  String(text ?? "").replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

// One stream per visible tab: a browser has six connections to a host.
export function follow(page, handlers) {
  const badge = at("link"), lost = at("lost");
  let source = null;
  const say = (text, kind) => { badge.textContent = text; badge.className = `badge ${kind}`; };
  const open = () => {
    source = new EventSource(`/events/${page}`);
    source.onopen = () => { say("live", "good"); lost.hidden = true; };
    source.onerror = () => say("reconnecting", "bad");
    source.onmessage = (event) => {
      for (const [section, body] of Object.entries(JSON.parse(event.data))) {
        const [kind, ...rest] = section.split(":");
        handlers[kind]?.(body, rest.join(":"));
      }
      document.body.dataset.seen = "yes";
    };
    source.addEventListener("lost", (event) => {
      lost.textContent = `The log cannot be read: ${JSON.parse(event.data).error}`;
      lost.hidden = false;
    });
  };
  document.addEventListener("visibilitychange", () => {
    source?.close();
    if (document.visibilityState === "visible") open(); else say("paused", "quiet");
  });
  open();
}

export async function send(instruction, problem) {
  problem.textContent = "";
  try {
    const answer = await fetch("/instructions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(instruction),
    });
    if (answer.ok) return true;
    problem.textContent = (await answer.json()).error;
  } catch {
    problem.textContent = "The pages' server does not answer.";
  }
  return false;
}

export const newId = (prefix) =>
  `${prefix}-${Array.from(crypto.getRandomValues(new Uint8Array(5)), (b) => b.toString(36)).join("")}`;

let tip = null;
export function showTip(event, head, ...lines) {
  hideTip();
  tip = make("div", { class: "tip", role: "tooltip" }, make("b", {}, shown(head)));
  for (const line of lines) tip.append(make("div", {}, shown(line)));
  document.body.append(tip);
  const box = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 12, innerWidth - box.width - 8);
  const y = event.clientY + box.height + 24 > innerHeight ? event.clientY - box.height - 10 : event.clientY + 14;
  // A sheet of its own: the policy allows no style attribute.
  tip.style.setProperty("left", `${Math.max(4, x)}px`);
  tip.style.setProperty("top", `${y}px`);
}
export function hideTip() { tip?.remove(); tip = null; }

// ---- curves ----------------------------------------------------------------------------------

const round = (value) => {
  const step = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find((n) => n * step >= value) * step;
};

// series: [{points: [[x, y], ...], name, area}], x in [from, to]; ticks: [[x, text]].
export function curve(host, { series, from, to, ticks, unit = "", bars = false, label }) {
  const width = Math.max(host.clientWidth - 24, 200), height = Number(host.dataset.height ?? 168);
  const left = 40, right = 18, top = 8, bottom = 20;
  const values = series.flatMap((s) => s.points.map((p) => p[1]));
  const max = round(Math.max(1, ...values));
  const px = (x) => left + ((x - from) / (to - from)) * (width - left - right);
  const py = (y) => height - bottom - (y / max) * (height - top - bottom);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const share of [0, 0.5, 1]) {
    const y = py(max * share);
    svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: y, y2: y }));
    const text = draw("text", { x: left - 6, y: y + 4, "text-anchor": "end" });
    text.append(short(max * share));
    svg.append(text);
  }
  for (const [x, text] of ticks) {
    const mark = draw("text", { x: px(x), y: height - 4, "text-anchor": "middle" });
    mark.append(text);
    svg.append(mark);
  }
  series.forEach(({ points, area }, n) => {
    if (!points.length) return;
    const name = `s${n + 1}`;
    if (bars) {
      const wide = Math.max(1.5, Math.min(14, (width - left - right) / Math.max(points.length, 12) - 2));
      for (const [x, y] of points) {
        svg.append(draw("rect", { class: "bar", x: px(x), y: py(y), width: wide, height: Math.max(0.5, py(0) - py(y)), rx: 1 }));
      }
      return;
    }
    const path = points.map(([x, y], i) => `${i ? "L" : "M"}${px(x).toFixed(1)},${py(y).toFixed(1)}`).join("");
    if (area) {
      const close = `L${px(points.at(-1)[0]).toFixed(1)},${py(0)}L${px(points[0][0]).toFixed(1)},${py(0)}Z`;
      svg.append(draw("path", { class: `area ${name}`, d: path + close }));
    }
    svg.append(draw("path", { class: `line ${name}`, d: path }));
    const [x, y] = points.at(-1);
    svg.append(draw("circle", { class: `dot ${name}`, cx: px(x), cy: py(y), r: 3 }));
  });
  const cross = draw("line", { class: "cross", y1: top, y2: height - bottom, visibility: "hidden" });
  svg.append(cross);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = from + (((event.clientX - box.left) * width) / box.width - left) / (width - left - right) * (to - from);
    const near = series[0].points.reduce((a, b) => (a && Math.abs(a[0] - x) <= Math.abs(b[0] - x) ? a : b), null);
    if (!near) return;
    cross.setAttribute("x1", px(near[0])); cross.setAttribute("x2", px(near[0]));
    cross.setAttribute("visibility", "visible");
    const lines = series.map((s) => {
      const point = s.points.find((p) => p[0] === near[0]);
      return point ? `${s.name ? `${s.name}: ` : ""}${short(point[1], true)}${unit}` : "";
    });
    showTip(event, near[2] ?? (near[0] > 1e6 ? timeOf(near[0]) : `${near[0]}:00`), ...lines.filter(Boolean));
  });
  svg.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); hideTip(); });
  host.replaceChildren(svg);
}

export const short = (n, exact = false) =>
  exact || n < 10_000 ? Number(n.toFixed(n < 10 ? 1 : 0)).toLocaleString("en") : `${Number((n / 1000).toFixed(n < 100_000 ? 1 : 0))}k`;

export function hourTicks(start) {
  return [0, 6, 12, 18, 24].map((h) => [start + h * 3_600_000, `${h}:00`]);
}

export const dayOf = (ms) => ms - (ms % DAY_MS);

// Draw again when the place for it changes.
export function redrawn(host, paint) {
  let wide = host.clientWidth;
  new ResizeObserver(() => { if (host.clientWidth !== wide) { wide = host.clientWidth; paint(); } }).observe(host);
  return paint;
}

// ---- the map ---------------------------------------------------------------------------------

const WIDTH = 1000, MARGIN = 40;
const RECENT = 16;

export class CityMap {
  constructor(host, checkpoints, { onChoose } = {}) {
    this.unit = Math.max(1, 620 / (host.clientWidth || 1000)); // dots stay visible on a small map
    this.places = new Map(checkpoints.map((c) => [c.checkpoint_id, c]));
    const middle = median(checkpoints.map((c) => c.latitude));
    const east = (c) => c.longitude * Math.cos((middle * Math.PI) / 180);
    const xs = checkpoints.map(east), ys = checkpoints.map((c) => c.latitude);
    const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const scale = (WIDTH - 2 * MARGIN) / (x1 - x0 || 1);
    const height = Math.min(760, Math.max(420, (y1 - y0) * scale + 2 * MARGIN));
    const scaleY = (height - 2 * MARGIN) / (y1 - y0 || 1);
    this.xy = new Map(checkpoints.map((c) => [c.checkpoint_id, [MARGIN + (east(c) - x0) * scale, height - MARGIN - (c.latitude - y0) * scaleY]]));
    this.svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": "Map of the city's cameras" });
    this.rings(height);
    this.roads();
    this.dots = new Map();
    const cams = draw("g");
    for (const c of checkpoints) cams.append(this.dot(c, onChoose));
    this.over = draw("g");
    this.svg.append(cams, this.over);
    this.names(checkpoints);
    host.replaceChildren(this.svg);
  }

  rings(height) {
    const points = [...this.xy.values()];
    const cx = median(points.map((p) => p[0])), cy = median(points.map((p) => p[1]));
    const far = points.map((p) => Math.hypot(p[0] - cx, p[1] - cy)).sort((a, b) => a - b);
    for (const share of [0.3, 0.72]) {
      this.svg.append(draw("circle", { class: "ring", cx, cy, r: far[Math.floor(far.length * share)] || height / 4 }));
    }
  }

  roads() {
    const all = [...this.xy.values()], drawn = new Set();
    all.forEach((a, i) => {
      all.map((b, j) => [Math.hypot(a[0] - b[0], a[1] - b[1]), j]).filter(([d, j]) => j !== i && d < 130)
        .sort((m, n) => m[0] - n[0]).slice(0, 3).forEach(([, j]) => {
          const name = i < j ? `${i}-${j}` : `${j}-${i}`;
          if (drawn.has(name)) return;
          drawn.add(name);
          this.svg.append(draw("line", { class: "road", x1: a[0], y1: a[1], x2: all[j][0], y2: all[j][1] }));
        });
    });
  }

  names(checkpoints) {
    const by = Map.groupBy ? Map.groupBy(checkpoints, (c) => c.district) : grouped(checkpoints);
    for (const [district, members] of by) {
      const x = median(members.map((c) => this.xy.get(c.checkpoint_id)[0]));
      const y = median(members.map((c) => this.xy.get(c.checkpoint_id)[1]));
      const text = draw("text", { class: "district", x, y });
      text.append(shown(district));
      this.svg.append(text);
    }
  }

  dot(c, onChoose) {
    const [cx, cy] = this.xy.get(c.checkpoint_id);
    const dot = draw("circle", { class: onChoose ? "cam f0" : "cam plain", cx, cy, r: (onChoose ? 7 : 4) * this.unit });
    dot.addEventListener("pointermove", (event) => showTip(event, c.place, ...(dot.dataset.said ? [dot.dataset.said] : [])));
    dot.addEventListener("pointerleave", hideTip);
    if (onChoose) {
      dot.setAttribute("tabindex", "-1");
      dot.addEventListener("click", () => onChoose(c.checkpoint_id));
    }
    this.dots.set(c.checkpoint_id, dot);
    return dot;
  }

  // Six steps, each twice as much as the one before: streets differ by orders of magnitude.
  flow(counts) {
    const max = Math.max(8, ...Object.values(counts));
    for (const [id, dot] of this.dots) {
      const n = counts[id] ?? 0;
      const step = n ? Math.max(1, Math.min(5, 5 - Math.floor(Math.log2(max / n)))) : 0;
      const chosen = dot.classList.contains("chosen") ? " chosen" : "";
      dot.setAttribute("class", `cam f${step}${chosen}`);
      dot.setAttribute("r", (this.unit * (5 + 9 * Math.sqrt(n / max))).toFixed(1));
      dot.dataset.said = `${whole(n)} in ten minutes`;
    }
    return max;
  }

  choose(id) {
    for (const [name, dot] of this.dots) dot.classList.toggle("chosen", name === id);
  }

  // Points in order of time: a path, a stop for each; older ones fade, the last one pulses.
  track(points) {
    const places = points.map((p) => this.xy.get(p.checkpoint_id)).filter(Boolean);
    this.over.replaceChildren();
    if (!places.length) return;
    const line = (part) => part.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");
    const recent = Math.max(0, places.length - RECENT);
    this.over.append(draw("path", { class: "path old", d: line(places.slice(0, recent + 1)) }));
    for (const [cx, cy] of places.slice(0, recent)) this.over.append(draw("circle", { class: "stop old", cx, cy, r: 5 * this.unit }));
    this.over.append(draw("path", { class: "path", d: line(places.slice(recent)) }));
    for (const [cx, cy] of places.slice(recent, -1)) this.over.append(draw("circle", { class: "stop", cx, cy, r: 7 * this.unit }));
    const [cx, cy] = places.at(-1);
    this.over.append(draw("circle", { class: "pulse", cx, cy, r: 9 }), draw("circle", { class: "stop last", cx, cy, r: 10 * this.unit }));
  }
}

const median = (numbers) => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];
function grouped(checkpoints) {
  const by = new Map();
  for (const c of checkpoints) by.set(c.district, [...(by.get(c.district) ?? []), c]);
  return by;
}

// ---- parts of both pages ---------------------------------------------------------------------

export function alarmRow(alarm) {
  const row = make("li", { class: alarm.is_open ? "open" : "" });
  row.append(
    make("time", {}, shown(alarm.city_time).slice(11, 16)),
    make("p", {}, shown(alarm.text)),
    make("span", { class: "flow" }, shown(alarm.is_open ? alarm.flow : `${alarm.flow}, closed`)),
  );
  return row;
}

export function none(text) { return make("p", { class: "none" }, text); }
