// One SQL query: steps, then its result. Cells are put into the page as text only.

import { count, make, why } from "./parts.js";

class Query {
  constructor(section) {
    this.part = (name) => section.querySelector(`[data-${name}]`);
    this.isDone = false;
    this.part("stop").hidden = false;
    this.part("stop").addEventListener("click", () => this.end("Stopped"));
    this.source = new EventSource(section.dataset.run);
    const on = (name, act) => this.source.addEventListener(name, (event) => act(JSON.parse(event.data)));
    on("step", (told) => {
      this.part("state").textContent = told.text;
    });
    on("table", (told) => this.table(told));
    on("result", (told) => this.result(told));
    on("problem", (told) => this.problem(told.text));
    this.source.addEventListener("error", async () => {
      if (!this.isDone) {
        this.source.close();
        this.problem(await why(section.dataset.run));
      }
    });
  }

  table(told) {
    const columns = told.columns.map(([name, type]) => `${name} ${type}`).join("\n");
    this.part("tables").append(make("span", { class: "badge", title: columns }, `${told.name}: ${count(told.rows)} rows`));
    if (told.note) {
      this.part("notes").append(make("p", { class: "notice warn" }, `${told.name}: ${told.note}`));
    }
  }

  result(told) {
    const head = make("tr", {});
    told.columns.forEach((name, at) => {
      const isNumber = /^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DOUBLE|FLOAT|DECIMAL.*)$/.test(told.types[at]);
      head.append(make("th", { scope: "col", class: isNumber ? "number" : "", title: told.types[at] }, name));
    });
    const body = make("tbody", {});
    for (const row of told.rows) {
      const line = make("tr", {});
      for (const cell of row) {
        if (cell === null) {
          line.append(make("td", { class: "muted" }, "null"));
        } else {
          line.append(make("td", { class: cell[0] === "n" ? "number mono" : "mono", title: cell[1] }, cell[1]));
        }
      }
      body.append(line);
    }
    this.part("result").replaceChildren(make("thead", {}, head), body);
    const more = told.more ? ", of more" : "";
    this.end(`${count(told.rows.length)} ${told.rows.length === 1 ? "row" : "rows"}${more} in ${(told.ms / 1000).toFixed(1)} s`);
  }

  problem(text) {
    this.part("notes").append(make("pre", { class: "notice bad wrap", role: "alert" }, text));
    this.end("No result");
  }

  end(told) {
    this.isDone = true;
    this.source.close();
    this.part("stop").hidden = true;
    this.part("state").textContent = told;
  }
}

const section = document.querySelector("[data-run]");
if (section.dataset.run) {
  new Query(section);
}
document.querySelector(".query textarea").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.target.form.requestSubmit();
  }
});
