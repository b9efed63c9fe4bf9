// Charts: each element with `data-chart` holds the address of its series, as JSON:
// {"times": [s], "series": [{"label": "lag", "values": [n]}], "unit": "records"}.

const charts = new Map();
const SPAN_MIN_S = 60;
const COLOURS = ["--accent", "--cold", "--good", "--warn", "--bad"];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function brief(value) {
  if (value === null || value === undefined) {
    return "–";
  }
  return new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(
    value,
  );
}

/** From the first time to the last, a minute at least. */
function span(times) {
  const last = times[times.length - 1] ?? Date.now() / 1000;
  return [Math.min(times[0] ?? last, last - SPAN_MIN_S), last];
}

function options(box, found) {
  const grid = { stroke: colour("--line"), width: 1 };
  const axis = { stroke: colour("--soft"), grid, ticks: grid };
  const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle: "h23" });
  return {
    width: box.clientWidth - 16,
    height: box.clientHeight - 40,
    cursor: { points: { size: 6 } },
    scales: {
      x: { range: (plot) => span(plot.data[0]) },
      y: { range: (_plot, _low, high) => [0, Math.max(high * 1.1, 1)] },
    },
    axes: [
      { ...axis, space: 90, values: (_plot, ticks) => ticks.map((s) => clock.format(s * 1000)) },
      { ...axis, size: 56, values: (_plot, ticks) => ticks.map(brief) },
    ],
    series: [
      { value: (_plot, s) => (s === null ? "–" : clock.format(s * 1000)) },
      ...found.series.map((row, i) => ({
        label: row.label,
        stroke: colour(COLOURS[i % COLOURS.length]),
        width: 2,
        points: { show: found.times.length < 3 },
        value: (_plot, v) => brief(v),
      })),
    ],
  };
}

function shape(found) {
  return found.series.map((row) => row.label).join("\n");
}

function draw(box, found) {
  const data = [found.times, ...found.series.map((row) => row.values)];
  const former = charts.get(box);
  if (former && former.shape === shape(found)) {
    former.plot.setData(data);
    return;
  }
  former?.plot.destroy();
  charts.set(box, { plot: new uPlot(options(box, found), data, box), shape: shape(found) });
}

/** Draw all charts of the page, or draw them again. */
export async function drawCharts() {
  for (const box of document.querySelectorAll("[data-chart]")) {
    const reply = await fetch(box.dataset.chart, { headers: { Accept: "application/json" } });
    if (reply.ok) {
      draw(box, await reply.json());
    }
  }
}

function drawAnew() {
  for (const chart of charts.values()) {
    chart.plot.destroy();
  }
  charts.clear();
  drawCharts();
}

addEventListener("resize", () => {
  for (const [box, chart] of charts) {
    chart.plot.setSize({ width: box.clientWidth - 16, height: box.clientHeight - 40 });
  }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAnew);
