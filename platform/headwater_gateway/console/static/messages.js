// The message browser: rows from the stream, records in full. What a record holds is put into the
// page as text only, never as HTML; offsets and other 64-bit numbers stay texts, as numbers of
// JavaScript would round them.

import { count, make, why } from "./parts.js";

const FRESH_ROWS_MAX = 1000;

function bytes(number) {
  const size = Number(number);
  if (size < 1024) {
    return `${size} B`;
  }
  const units = ["KiB", "MiB", "GiB"];
  let value = size / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

async function asked(address) {
  const answer = await fetch(address, { headers: { Accept: "application/json" } });
  const found = await answer.json();
  if (!answer.ok) {
    throw new Error(found.problem ?? `the gateway answers ${answer.status}`);
  }
  return found;
}

// --- a record in full ------------------------------------------------------------------------

function leaf(kind, text, cut) {
  const parts = [make("span", { class: kind }, text)];
  if (cut > 0) {
    parts.push(make("span", { class: "cut" }, ` … ${count(cut)} more`));
  }
  return parts;
}

/** The path of a field in a filter; null where an escape hides what the name is. */
function below(path, name) {
  if (path === null || name.includes("\\")) {
    return null;
  }
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) ? `${path}.${name}` : `${path}[${JSON.stringify(name)}]`;
}

/** The value of a leaf as a filter writes it; null where that is not known to the letter. */
function literal([kind, content, cut]) {
  if (kind === "s" && cut === 0 && !content.includes("\\") && content.length < 200) {
    return JSON.stringify(content);
  }
  return (kind === "n" && content.length < 18) || kind === "w" ? content : null;
}

/** The name of a field; on the browser's page a click narrows the filter to its value. */
function nameOf(name, path, node) {
  const field = document.querySelector(".expression input");
  const value = path === null ? null : literal(node);
  if (field === null || value === null) {
    return make("span", { class: "field-name" }, name);
  }
  const button = make("button", { class: "field-name", type: "button", title: "Put it into the filter" }, name);
  button.addEventListener("click", () => {
    const now = field.value.trim();
    const more = `${path} == ${value}`;
    field.value = now ? `${now} && ${more}` : more;
    field.focus();
  });
  return button;
}

/** The nodes of `shown_text.tree_of` as elements. */
function branch(node, name, depth, path) {
  const label = name === null ? [] : [nameOf(name, path, node), ": "];
  const [kind, content, cut] = node;
  if (kind === "o" || kind === "a") {
    const marks = kind === "o" ? ["{", "}"] : ["[", "]"];
    const total = content.length + cut;
    const inside = make("div");
    content.forEach((one, at) => {
      const child =
        kind === "o"
          ? branch(one[1], one[0], depth + 1, below(path, one[0]))
          : branch(one, String(at), depth + 1, null);
      inside.append(child);
    });
    if (cut > 0) {
      inside.append(make("div", { class: "leaf cut" }, `… ${count(cut)} more`));
    }
    if (total === 0) {
      return make("div", { class: "leaf" }, ...label, `${marks[0]}${marks[1]}`);
    }
    const summary = make("summary", {}, ...label, `${marks[0]} ${count(total)} ${marks[1]}`);
    return make("details", { open: depth < 3 && total <= 50 }, summary, inside);
  }
  const shown = {
    s: () => leaf("string", JSON.stringify(content).replaceAll("\\\\", "\\"), cut),
    n: () => leaf("digits", content, 0),
    w: () => leaf("word", content, 0),
    b: () => leaf("string", `0x${content}`, cut),
    d: () => leaf("cut", "… nests deeper than is shown", 0),
  };
  return make("div", { class: "leaf" }, ...label, ...shown[kind]());
}

/** Text or hex, with a button for the next 4 KB. */
function pieces(first, address) {
  const text = make("pre", { class: "wrap" }, first.text);
  const view = make("div", {}, text);
  const more = make("button", { class: "button small", type: "button" }, "Next 4 KB");
  let next = first.next;
  more.addEventListener("click", async () => {
    more.disabled = true;
    try {
      const piece = await asked(`${address}&at=${next}`);
      text.append(address.includes("as=hex") ? `\n${piece.text}` : piece.text);
      next = piece.next;
    } catch (error) {
      view.append(make("p", { class: "notice bad" }, error.message));
    }
    more.disabled = false;
    more.hidden = next === null;
  });
  more.hidden = next === null;
  view.append(more);
  return view;
}

function traceOf(side) {
  if (!side.trace?.length) {
    return null;
  }
  const failed = side.trace.filter((step) => !step.ok).length;
  const title = side.kind === "hex" ? "Why can't I decode this?" : "How it was decoded";
  const list = make("ol");
  for (const step of side.trace) {
    const where = step.at === null ? "" : ` at byte ${step.at}`;
    list.append(
      make(
        "li",
        {},
        make("span", { class: step.ok ? "ok" : "no", "aria-hidden": "true" }, step.ok ? "✓" : "✗"),
        make("span", {}, `${step.name}${where}`),
        make("span", { class: "muted" }, step.detail),
      ),
    );
  }
  const told = failed ? `${title} (${failed} ${failed === 1 ? "way does" : "ways do"} not fit)` : title;
  return make("details", { class: "trace", open: side.kind === "hex" }, make("summary", {}, told), list);
}

function sideOf(name, side, address) {
  const title = name === "key" ? "Key" : "Value";
  const box = make("section", { class: "side-of", "aria-label": title });
  const head = make("header", {}, make("h3", {}, title), make("span", { class: `kind ${side.kind}` }, side.kind));
  box.append(head);
  if (side.kind === "null") {
    head.append(make("span", { class: "muted" }, name === "value" ? "a tombstone: there is no value" : "there is no key"));
    return box;
  }
  if (side.schema !== null) {
    head.append(make("span", { class: "badge" }, `schema ${side.schema}`));
  }
  head.append(make("span", { class: "muted" }, bytes(side.size)));
  const views = {};
  if (side.tree !== null) {
    views.Tree = () => make("div", { class: "tree" }, branch(side.tree, null, 0, name));
  }
  views.Text = () => pieces(side.text, `${address}/piece?side=${name}&as=text`);
  views.Hex = () => pieces(side.hex, `${address}/piece?side=${name}&as=hex`);
  const view = make("div", { class: "blob-view", tabindex: "0" });
  const segments = make("span", { class: "segments", role: "group", "aria-label": `Show the ${name} as` });
  const choose = (chosen) => {
    for (const button of segments.children) {
      button.setAttribute("aria-pressed", String(button.textContent === chosen));
    }
    view.replaceChildren(views[chosen]());
  };
  for (const label of Object.keys(views)) {
    const button = make("button", { type: "button", "aria-pressed": "false" }, label);
    button.addEventListener("click", () => choose(label));
    segments.append(button);
  }
  const raw = make("a", { class: "button small", href: `${address}/raw?side=${name}`, download: true }, "Bytes");
  head.append(make("span", { class: "end" }, segments, raw));
  box.append(view);
  const first = side.kind === "hex" ? "Hex" : side.tree !== null ? "Tree" : "Text";
  choose(first);
  const trace = traceOf(side);
  if (trace) {
    box.append(trace);
  }
  return box;
}

function headersOf(headers) {
  if (!headers.length) {
    return null;
  }
  const table = make("table", { class: "headers-of" });
  for (const header of headers) {
    const shown = header.kind === "null" ? make("span", { class: "kind null" }, "null") : header.text;
    table.append(make("tr", {}, make("td", { class: "mono" }, header.name), make("td", { class: "mono" }, shown)));
  }
  const head = make("header", {}, make("h3", {}, "Headers"), make("span", { class: "muted" }, String(headers.length)));
  return make("section", { class: "side-of", "aria-label": "Headers" }, head, table);
}

function inFull(record) {
  const fact = (name, text) => make("span", {}, make("b", {}, name), text);
  const facts = make(
    "p",
    { class: "record-facts" },
    fact("Time", record.t),
    fact(record.timestamp_type, `${record.timestamp_ms} ms`),
    record.leader_epoch >= 0 ? fact("leader epoch", String(record.leader_epoch)) : null,
  );
  return make(
    "div",
    { class: "inside" },
    facts,
    sideOf("key", record.key, record.address),
    sideOf("value", record.value, record.address),
    headersOf(record.headers),
  );
}

async function fill(place, address) {
  try {
    place.replaceChildren(inFull(await asked(address)));
  } catch (error) {
    place.replaceChildren(make("p", { class: "notice bad pad" }, error.message));
  }
}

// --- the table -------------------------------------------------------------------------------

function cell(side, name) {
  const kind = make("span", { class: `kind ${side.kind}` }, side.schema === undefined ? side.kind : `${side.kind} ${side.schema}`);
  return make("td", { class: `blob ${name}`, title: side.cut ? "" : null }, kind, side.text, side.cut ? "…" : "");
}

function rowOf(message, root, query) {
  const address = `${root}/${message.p}/${message.o}`;
  const opener = make("button", { class: "opener", type: "button", "aria-expanded": "false", "aria-label": `Open offset ${message.o}` });
  const row = make(
    "tr",
    { class: "message" },
    make("td", { class: "shrink" }, opener),
    make("td", { class: "number shrink" }, String(message.p)),
    make("td", { class: "number shrink mono" }, make("a", { href: `${address}${query}` }, message.o)),
    make("td", { class: "time shrink" }, message.t.replace("T", " ").replace("Z", "")),
    cell(message.key, "key"),
    cell(message.value, "value"),
    make("td", { class: "number shrink muted size" }, bytes(message.key.size + message.value.size)),
  );
  const toggle = () => {
    const isOpen = opener.getAttribute("aria-expanded") === "true";
    opener.setAttribute("aria-expanded", String(!isOpen));
    if (isOpen) {
      row.nextElementSibling.remove();
      return;
    }
    const place = make("td", { colspan: "7" }, make("p", { class: "empty" }, "Reading …"));
    row.after(make("tr", { class: "opened" }, place));
    fill(place, `${address}/detail${query}`);
  };
  opener.addEventListener("click", toggle);
  row.addEventListener("click", (event) => {
    const isText = String(document.getSelection()).length > 0;
    if (!event.target.closest("a, button") && !isText) {
      toggle();
    }
  });
  return row;
}

/** One stream, shown while the tab is visible. */
class Browser {
  constructor(section) {
    this.section = section;
    this.root = section.dataset.root;
    this.address = section.dataset.stream;
    this.rows = section.querySelector("[data-rows]");
    this.state = section.querySelector("[data-state]");
    this.counts = section.querySelector("[data-counts]");
    this.notes = section.querySelector("[data-notes]");
    this.bar = section.querySelector("[data-progress]");
    this.stop = section.querySelector("[data-stop]");
    this.isLive = false;
    this.isDone = false;
    this.shown = 0;
    this.from = "";
    const formats = new URLSearchParams(this.address.split("?")[1] ?? "");
    const kept = new URLSearchParams();
    for (const name of ["key", "value"]) {
      if (formats.has(name)) {
        kept.set(name, formats.get(name));
      }
    }
    this.query = String(kept) ? `?${kept}` : "";
    this.stop.addEventListener("click", () => this.end("Stopped"));
    document.addEventListener("visibilitychange", () => this.onVisible());
    this.open();
  }

  open() {
    this.source = new EventSource(this.address);
    const on = (name, act) => this.source.addEventListener(name, (event) => act(JSON.parse(event.data)));
    on("start", (told) => this.begin(told));
    on("rows", (rows) => this.add(rows));
    on("progress", (told) => this.progress(told));
    on("done", (told) => this.done(told));
    on("problem", (told) => this.problem(told.text));
    this.source.addEventListener("error", async () => {
      if (!this.isDone) {
        this.source.close();
        this.problem(await why(this.address));
      }
    });
  }

  begin(told) {
    this.isLive = told.live;
    this.from = told.source ? ` from the ${told.source}` : "";
    this.stop.hidden = false;
    this.bar.hidden = this.isLive;
    this.state.textContent = this.isLive ? "Live: waiting for messages" : "Reading …";
  }

  add(rows) {
    const fresh = document.createDocumentFragment();
    for (const message of rows) {
      const row = rowOf(message, this.root, this.query);
      if (this.isLive) {
        row.classList.add("fresh");
        fresh.prepend(row);
      } else {
        fresh.append(row);
      }
    }
    this.shown += rows.length;
    if (this.isLive) {
      this.rows.prepend(fresh);
      while (this.rows.childElementCount > FRESH_ROWS_MAX) {
        this.rows.lastElementChild.remove();
      }
      this.state.textContent = `Live: ${count(this.shown)} messages`;
    } else {
      this.rows.append(fresh);
    }
  }

  progress(told) {
    if (told.total !== undefined) {
      const total = Number(told.total);
      this.bar.value = total > 0 ? Math.min(1, Number(told.passed) / total) : 1;
      this.state.textContent = `Reading … ${count(told.scanned)} read, ${count(this.shown)} shown`;
      this.ms = told.ms;
    }
    this.read = told.scanned;
    const badge = (number, text, kind) => (number ? make("span", { class: `badge ${kind}` }, `${count(number)} ${text}`) : null);
    this.counts.replaceChildren(
      ...[
        badge(told.missing, "without a field", ""),
        badge(told.type_errors, "of another type", "warn"),
        badge(told.too_long, "with integers beyond 64 bits", "warn"),
        badge(told.undecodable, "not decoded", "warn"),
        badge(told.dropped, "dropped: too fast for this tab", "warn"),
      ].filter((one) => one !== null),
    );
    const named = told.named.map((text) => make("p", { class: "notice warn" }, `Left out: ${text}`));
    this.notes.replaceChildren(...named);
  }

  done(told) {
    const seconds = this.ms === undefined ? "" : ` in ${(this.ms / 1000).toFixed(1)} s`;
    const read = this.read === undefined ? "" : `, ${count(this.read)} read${seconds}`;
    this.end(`${count(this.shown)} ${this.shown === 1 ? "message" : "messages"}${this.from}${read}`);
    if (told.end === "time" || told.end === "records") {
      this.notes.append(make("p", { class: "notice warn" }, `Not all was read: ${told.why}.`));
    }
    if (told.more) {
      const more = this.section.querySelector("[data-more]");
      more.hidden = false;
      more.firstElementChild.href = `?${told.more}`;
      more.firstElementChild.textContent = new URLSearchParams(told.more).has("from") ? "Next" : "Older";
    }
  }

  problem(text) {
    this.end("Nothing more is read");
    this.notes.append(make("p", { class: "notice bad", role: "alert" }, text));
  }

  end(told) {
    this.isDone = true;
    this.source.close();
    this.stop.hidden = true;
    this.bar.hidden = true;
    this.state.textContent = told;
    this.section.querySelector("[data-empty]").hidden = this.rows.childElementCount > 0;
    this.section.dataset.ended = "";
  }

  /** A tail of a hidden tab would take a connection for nobody. */
  onVisible() {
    if (!this.isLive || this.isDone) {
      return;
    }
    if (document.visibilityState === "hidden") {
      this.source.close();
      this.state.textContent = "Live: paused while this tab is hidden";
    } else {
      this.open();
    }
  }
}

/** `e` opens the row that has the focus in place. */
function onRowKey(event) {
  const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
  if (event.key === "e" && isPlain && !event.target.closest("input, textarea, select")) {
    event.target.closest("tr.message")?.querySelector(".opener").click();
  }
}

// --- the form --------------------------------------------------------------------------------

function onFrom(select) {
  const at = document.querySelector("[data-at]");
  const hints = { offset: "1234", ts: "2026-11-25T10:00:00Z", version: "12" };
  at.hidden = hints[select.value] === undefined;
  at.querySelector("input").placeholder = hints[select.value] ?? "";
}

/** Addresses stay short: what is empty or a default is not sent. */
function onAsk(form) {
  const defaults = { from: "newest", key: "auto", value: "auto", n: "50" };
  for (const field of form.elements) {
    if (field.name && (field.value === "" || field.value === defaults[field.name] || field.closest("[hidden]"))) {
      field.disabled = true;
    }
  }
}

const section = document.querySelector("[data-stream]");
if (section?.dataset.stream) {
  new Browser(section);
  document.addEventListener("keydown", onRowKey);
}
const detail = document.querySelector("[data-detail]");
if (detail) {
  fill(detail, detail.dataset.detail);
}
const from = document.querySelector("[data-from]");
if (from) {
  from.addEventListener("change", () => onFrom(from));
  document.querySelector("[data-ask]").addEventListener("submit", (event) => onAsk(event.target));
  window.addEventListener("pageshow", () => {
    for (const field of document.querySelector("[data-ask]").elements) {
      field.disabled = false;
    }
  });
}
