// Every picture of the pages and of the report: a function from figures to traces of Plotly.
"use strict";
const Posterity = (function () {
  const root = document.documentElement;
  const MOST_WORDS = 300;
  const SMALL = matchMedia("(max-width: 600px)");
  const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false };

  // Colours as the sheet has them now; a probe, because light-dark() is resolved only on use.
  function colours() {
    const probe = document.createElement("span");
    probe.hidden = true;
    document.body.append(probe);
    const found = {};
    for (const name of ["ink", "quiet", "line", "accent", "fixed", "broke", "neutral", "card", "shade"]) {
      probe.style.color = `var(--${name})`;
      found[name] = getComputedStyle(probe).color;
    }
    probe.remove();
    return found;
  }
  const faint = (colour, share) => colour.replace(/rgba?\(([^,]+),([^,]+),([^,)]+).*/, `rgba($1,$2,$3,${share})`);
  const whole = (value) => Math.round(value).toLocaleString("en");
  const number = (value) => (Math.abs(value) >= 10 ? whole(value) : value.toFixed(1));
  const percent = (value) => `${(100 * value).toFixed(1)} %`;
  const cut = (text, most = 22) => { text = String(text); return text.length > most ? `${text.slice(0, most - 1)}…` : text; };
  // Names come from the store: what Plotly would read as markup, or as a formula, is taken apart.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\$/g, "&#36;");
  // Classes may be truth values, which Python writes in its own way.
  const className = (value) => (typeof value === "boolean" ? (value ? "True" : "False") : String(value));
  const named = (text, most) => plain(cut(text, most));

  function layout(c, more) {
    // Names of classes and models need their labels measured (automargin); numbers do not.
    const axis = { gridcolor: c.line, zerolinecolor: c.line, linecolor: c.line, fixedrange: true, tickfont: { color: c.quiet, size: 11 }, title: { font: { color: c.quiet, size: 12 }, standoff: 6 } };
    const base = {
      margin: { l: 58, r: 12, t: 8, b: 44 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: c.ink, size: 12, family: "system-ui, sans-serif" },
      hoverlabel: { bgcolor: c.card, bordercolor: c.line, font: { color: c.ink }, align: "left" },
      hovermode: "closest", dragmode: false, showlegend: false,
      legend: { traceorder: "normal", orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { color: c.quiet, size: 11 } },
    };
    const { xaxis, yaxis, ...rest } = more;
    // Where there is no grid, 0 is only the first of some names.
    const ruled = (given = {}) => ({ ...axis, zeroline: given.showgrid !== false, ...given, title: { ...axis.title, ...given.title } });
    return { ...base, ...rest, xaxis: ruled(xaxis), yaxis: ruled(yaxis) };
  }
  // Room for names on both sides of a heat map, measured once: Plotly would draw it twice to find out.
  function room(names, most, title) {
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = "11px system-ui, sans-serif";
    const widest = Math.max(...names.map((name) => pen.measureText(cut(name, most)).width));
    return { l: widest + 12 + title, r: 24, t: 8, b: 0.9 * widest + 16 + title };
  }
  // Beside which points words find room, and on which side; the others are left to the pointer.
  const SIDES = { "middle left": [-1, 0], "top left": [-1, -1], "bottom left": [-1, 1], "bottom right": [1, 1], "middle right": [1, 0], "top right": [1, -1], "top center": [0, -1], "bottom center": [0, 1] };
  function beside(wanted, lines, xs, ys) {
    const wide = SMALL.matches || paper ? 220 : 380, high = 220; // the least there is, as pictures change their size
    const place = (p) => [(wide * (p.x - xs[0])) / (xs[1] - xs[0]), high - (high * (p.y - ys[0])) / (ys[1] - ys[0])];
    const square = ([x, y], by) => [x - by, x + by, y - by, y + by];
    const between = (from, to) => [...Array(60).keys()].map((at) => square([0, 1].map((way) => from[way] + ((to[way] - from[way]) * at) / 60), 1));
    const taken = lines.flatMap((points) => points.flatMap((p, at) => [square(place(p), 4), ...(at ? between(place(points[at - 1]), place(p)) : [])]));
    taken.push(...wanted.map(({ point, away }) => square(place(point), away - 1)));
    const names = Object.keys(SIDES), found = new Map();
    for (const { point, text, away, right } of wanted) {
      const [x, y] = place(point), width = 6.5 * text.length + 2;
      for (const side of right ? [...names.slice(3), ...names] : names) {
        const [h, v] = SIDES[side];
        const left = x + h * away + (h < 0 ? -width : h ? 0 : -width / 2), top = y + v * away + (v < 0 ? -13 : v ? 0 : -6.5);
        const box = [left, left + width, top, top + 13];
        if (left < 0 || box[1] > wide || top < 0 || box[3] > high) continue;
        if (taken.some((t) => t[0] < box[1] && box[0] < t[1] && t[2] < box[3] && box[2] < t[3])) continue;
        taken.push(box);
        found.set(point, { text, side });
        break;
      }
    }
    return found;
  }
  const stepsAxis = (steps) => ({
    tickmode: "array", tickvals: steps.map((s) => s.step), ticktext: steps.map((s) => s.step),
    title: { text: "step" }, showgrid: false, range: [steps[0].step - 0.6, steps[steps.length - 1].step + 0.6],
  });
  const stepName = (s) => `step ${s.step}: ${plain(s.what)}${s.counts ? "" : " (undone)"}`;

  const kinds = {
    accuracy(data, c) {
      const steps = data.steps.filter((s) => s.accuracy);
      const x = steps.map((s) => s.step), y = steps.map((s) => s.accuracy.value);
      const sure = steps.filter((s) => s.accuracy.low !== null);
      const traces = [];
      if (sure.length) {
        traces.push({ x: [...sure.map((s) => s.step), ...sure.map((s) => s.step).reverse()], y: [...sure.map((s) => s.accuracy.high), ...sure.map((s) => s.accuracy.low).reverse()], fill: "toself", fillcolor: faint(c.accent, 0.18), line: { width: 0 }, hoverinfo: "skip", mode: "lines" });
      }
      traces.push({
        x, y, mode: "lines+markers", line: { color: c.accent, width: 2 },
        marker: { color: steps.map((s) => (s.checked ? c.accent : c.card)), line: { color: c.accent, width: 2 }, size: 8 },
        text: steps.map((s) => `${stepName(s)}<br>${percent(s.accuracy.value)}${s.accuracy.low === null ? ", unchecked" : ` (${(100 * s.accuracy.low).toFixed(1)} to ${(100 * s.accuracy.high).toFixed(1)})`}`), hoverinfo: "text",
      });
      return [traces, layout(c, { xaxis: stepsAxis(data.steps), yaxis: { tickformat: ".0%" } })];
    },
    flips(data, c) {
      const steps = data.steps.filter((s) => s.flips);
      const x = steps.map((s) => s.step);
      const known = (kind) => steps.map((s) => (s[kind] ? s[kind].value : 0));
      const arrow = (kind, sign) => ({ type: "data", symmetric: false, color: c.ink, thickness: 1, width: 3, array: steps.map((s) => (s[kind] && s[kind].high !== null ? (sign > 0 ? s[kind].high - s[kind].value : s[kind].value - s[kind].low) : 0)), arrayminus: steps.map((s) => (s[kind] && s[kind].low !== null ? (sign > 0 ? s[kind].value - s[kind].low : s[kind].high - s[kind].value) : 0)) });
      const told = steps.map((s) => `${stepName(s)}<br>${whole(s.flips)} flips` + (s.fixed ? `<br>${number(s.fixed.value)} fixed, ${number(s.broke.value)} broke, ${number(s.neutral)} neutral` : ""));
      return [[
        { type: "bar", name: "fixed", x, y: known("fixed"), error_y: arrow("fixed", 1), marker: { color: c.fixed }, text: told, textposition: "none", hoverinfo: "text" },
        { type: "bar", name: "neutral or not known", x, y: steps.map((s) => (s.neutral === null ? s.flips : s.neutral)), base: known("fixed"), marker: { color: c.neutral, opacity: 0.55 }, text: told, textposition: "none", hoverinfo: "text" },
        { type: "bar", name: "broke", x, y: known("broke").map((v) => -v), error_y: arrow("broke", -1), marker: { color: c.broke }, text: told, textposition: "none", hoverinfo: "text" },
      ], layout(c, { barmode: "overlay", bargap: 0.35, showlegend: true, margin: { l: 58, r: 12, t: 28, b: 44 }, xaxis: stepsAxis(data.steps), yaxis: { tickformat: ",.0f" } })];
    },
    evaluations(data, c) {
      const steps = data.steps;
      return [[{ type: "bar", x: steps.map((s) => s.step), y: steps.map((s) => s.evaluations), marker: { color: c.accent, opacity: 0.75 }, text: steps.map((s) => `${stepName(s)}<br>${whole(s.evaluations)} evaluations`), textposition: "none", hoverinfo: "text" }], layout(c, { bargap: 0.35, xaxis: stepsAxis(steps), yaxis: { tickformat: ",.0f" } })];
    },
    entropies(data, c) {
      const steps = data.steps.map((step) => ({ step }));
      if (!steps.length) return null;
      const total = data.items.map((row) => row.reduce((a, b) => a + b, 0));
      const unseen = data.unseen[data.unseen.length - 1];
      const centre = data.edges.slice(1).map((edge, at) => (edge + data.edges[at]) / 2);
      const z = centre.map((_, bin) => data.items.map((row, at) => (total[at] ? row[bin] / total[at] : 0)));
      const line = (share, dash, width) => ({ x: data.steps, y: data.quantiles[share], mode: "lines", line: { color: c.ink, width, dash }, hoverinfo: "skip" });
      const text = centre.map((value, bin) => data.steps.map((step, at) => `after step ${step}<br>entropy ${data.edges[bin].toFixed(2)} to ${data.edges[bin + 1].toFixed(2)}<br>${whole(data.items[at][bin])} items`));
      return [[
        { type: "heatmap", x: data.steps, y: centre, z, text, hoverinfo: "text", colorscale: [[0, faint(c.accent, 0)], [0.15, faint(c.accent, 0.35)], [1, c.accent]], showscale: false },
        line("0.1", "dot", 1), line("0.5", "solid", 2), line("0.9", "dot", 1),
      ], layout(c, { xaxis: stepsAxis(steps), yaxis: { title: { text: "entropy in nats" }, rangemode: "tozero" }, annotations: unseen ? [{ xref: "paper", yref: "paper", x: 1, y: 1, xanchor: "right", yanchor: "top", showarrow: false, font: { color: c.quiet, size: 11 }, text: `${whole(unseen)} items without a vote are not shown` }] : [] })];
    },
    beliefs(data, c) {
      const centre = data.edges.slice(1).map((edge, at) => (edge + data.edges[at]) / 2);
      return [[{ type: "bar", x: centre, y: data.flips, width: 0.045, marker: { color: c.accent, opacity: 0.75 }, text: data.flips.map((count, at) => `${data.edges[at].toFixed(2)} to ${data.edges[at + 1].toFixed(2)}: ${whole(count)} flips`), textposition: "none", hoverinfo: "text" }], layout(c, { xaxis: { range: [0, 1], title: { text: "belief" } }, yaxis: { tickformat: ",.0f" } })];
    },
    pairs(data, c) {
      const rows = [...data.pairs].reverse();
      const y = rows.map((_, at) => at);
      const side = (kind, colour, sign) => ({ type: "bar", orientation: "h", name: kind, y, x: rows.map((r) => (r[kind] ? sign * r[kind].value : 0)), marker: { color: colour }, text: rows.map((r) => `${plain(r.old)} → ${plain(r.new)}<br>${whole(r.flips)} flips${r.fixed ? `<br>${number(r.fixed.value)} fixed, ${number(r.broke.value)} broke` : ""}`), textposition: "none", hoverinfo: "text" });
      const known = rows.some((r) => r.fixed);
      const traces = known ? [side("fixed", c.fixed, 1), side("broke", c.broke, -1)] : [{ ...side("fixed", c.neutral, 1), x: rows.map((r) => r.flips) }];
      return [traces, layout(c, { barmode: "relative", bargap: 0.3, xaxis: { tickformat: ",.0f" }, yaxis: { automargin: true, tickmode: "array", tickvals: y, ticktext: rows.map((r) => `${named(r.old, 16)} → ${named(r.new, 16)}`), showgrid: false } })];
    },
    story(data, c) {
      const { steps, classes, beliefs, rest, entropy } = data.beliefs;
      const palette = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
      const by = Object.fromEntries(data.history.map((h) => [h.step, h]));
      const x = steps.map((_, at) => at);
      const traces = classes.map((name, k) => ({ type: "bar", name: named(name, 28), x, y: beliefs[k], marker: { color: palette[k % palette.length] }, text: steps.map((s, at) => `after step ${s}: ${plain(name)} believed ${beliefs[k][at].toFixed(3)}`), textposition: "none", hoverinfo: "text" }));
      traces.push({ type: "bar", name: "all others", x, y: rest, marker: { color: c.neutral, opacity: 0.4 }, text: steps.map((s, at) => `after step ${s}: all others ${rest[at].toFixed(3)}<br>entropy ${entropy[at].toFixed(2)} nats`), textposition: "none", hoverinfo: "text" });
      const middle = (name, at) => { let below = 0; for (let k = 0; k < classes.length; k++) { if (classes[k] === name) return below + beliefs[k][at] / 2; below += beliefs[k][at]; } return 1 - rest[at] / 2; };
      const found = steps.map((s, at) => ({ at, h: by[s] })).filter((f) => f.h);
      traces.push({ mode: "lines+markers", name: "label", x: found.map((f) => f.at), y: found.map((f) => middle(className(f.h.label), f.at)), line: { color: c.ink, width: 2, shape: "linear" }, marker: { color: c.card, size: 11, line: { color: c.ink, width: 2 } }, text: found.map((f) => `label after step ${f.h.step}: ${plain(f.h.label)}`), hoverinfo: "text" });
      traces.push({ mode: "markers", name: "vote", x: found.map((f) => f.at), y: found.map((f) => middle(className(f.h.vote), f.at)), marker: { color: c.ink, size: 6 }, text: found.map((f) => `vote of ${plain(f.h.model)}: ${plain(f.h.vote)}`), hoverinfo: "text" });
      return [traces, layout(c, { barmode: "stack", bargap: 0.25, showlegend: true, margin: { l: 58, r: 12, t: 48, b: 44 }, xaxis: { tickmode: "array", tickvals: x, ticktext: steps.map((s) => `${s}: ${by[s] ? named(by[s].model, 16) : ""}<br>${by[s] ? named(by[s].vote, 16) : ""}`), showgrid: false }, yaxis: { range: [0, 1], title: { text: "belief" } } })];
    },
    classes(data, c) {
      const rows = data.classes, x = rows.map((_, at) => at);
      const few = rows.length <= 40;
      const told = rows.map((r) => `${plain(r.class)}: ${percent(r.accuracy)} of ${whole(r.labelled)} (${(100 * r.low).toFixed(0)} to ${(100 * r.high).toFixed(0)})`);
      const yaxis = { tickformat: ".0%", range: [-0.02, 1.03] };
      if (!few) { // a band, because a thousand whiskers take longer to draw than the rest of the page
        const band = { x: [...x, ...[...x].reverse()], y: [...rows.map((r) => r.high), ...rows.map((r) => r.low).reverse()], fill: "toself", fillcolor: faint(c.accent, 0.2), line: { width: 0 }, mode: "lines", hoverinfo: "skip" };
        return [[band, { mode: "lines", x, y: rows.map((r) => r.accuracy), line: { color: c.accent, width: 2 }, text: told, hoverinfo: "text" }], layout(c, { xaxis: { title: { text: `${rows.length} classes, the worst first` }, showgrid: false }, yaxis, hovermode: "x" })];
      }
      return [[{
        mode: "markers", x, y: rows.map((r) => r.accuracy), marker: { color: c.accent, size: 7 },
        error_y: { type: "data", symmetric: false, array: rows.map((r) => r.high - r.accuracy), arrayminus: rows.map((r) => r.accuracy - r.low), color: faint(c.accent, 0.6), thickness: 1, width: 0 },
        text: told, hoverinfo: "text",
      }], layout(c, { xaxis: { automargin: true, tickmode: "array", tickvals: x, ticktext: rows.map((r) => named(r.class, 14)), tickangle: -60, showgrid: false }, yaxis })];
    },
    confusion(data, c) {
      const names = data.classes.map((n) => named(n, 14)), x = names.map((_, at) => at);
      const text = data.shares.map((row, i) => row.map((share, k) => `truth ${plain(data.classes[k])}<br>vote ${plain(data.classes[i])}<br>${percent(share)} of ${whole(data.labelled[k])}`));
      const ticks = { tickmode: "array", tickvals: x, ticktext: names, showgrid: false };
      return [[{ type: "heatmap", x, y: x, z: data.shares, text, hoverinfo: "text", zmin: 0, zmax: 1, xgap: 1, ygap: 1, colorscale: [[0, c.shade], [0.02, faint(c.accent, 0.25)], [1, c.accent]], showscale: false }], layout(c, { xaxis: { ...ticks, tickangle: -60, title: { text: "truth" } }, yaxis: { ...ticks, autorange: "reversed", title: { text: "vote" } }, margin: room(data.classes, 14, 26) })];
    },
    agreement(data, c) {
      const names = data.models.map((n) => named(n, 18)), x = names.map((_, at) => at);
      const z = data.shares.map((row, i) => row.map((value, k) => (i === k ? null : value)));
      const text = data.shares.map((row, i) => row.map((value, k) => `${plain(data.models[i])} and ${plain(data.models[k])}: ${value === null ? "no labelled items in common" : percent(value)}`));
      const ticks = { tickmode: "array", tickvals: x, ticktext: names, showgrid: false };
      return [[{ type: "heatmap", x, y: x, z, text, hoverinfo: "text", texttemplate: names.length <= 9 && !SMALL.matches && !paper ? "%{z:.0%}" : "", textfont: { size: 10 }, xgap: 1, ygap: 1, colorscale: [[0, c.shade], [1, c.accent]], colorbar: { thickness: 8, outlinewidth: 0, tickformat: ".0%", tickfont: { color: c.quiet, size: 10 } } }], layout(c, { xaxis: { ...ticks, tickangle: -60 }, yaxis: { ...ticks, autorange: "reversed" }, margin: room(data.models, 18, 0) })];
    },
    reliability(data, c) {
      if (!data || !data.labels) return null;
      const curve = (found, name, colour, symbol) => {
        const rows = found.bins.filter((b) => b.items >= 10);
        return { name: `${name}: off by ${(100 * found.error).toFixed(1)} points`, mode: "lines+markers", x: rows.map((b) => b.belief), y: rows.map((b) => b.right), error_y: { type: "data", array: rows.map((b) => 1.645 * Math.sqrt((b.right * (1 - b.right)) / b.items)), color: colour, thickness: 1, width: 0 }, line: { color: colour, width: 2 }, marker: { color: colour, size: 7, symbol }, text: rows.map((b) => `believed ${b.belief.toFixed(2)}, right ${percent(b.right)} of ${whole(b.items)}`), hoverinfo: "text" };
      };
      return [[
        { x: [0, 1], y: [0, 1], mode: "lines", line: { color: c.neutral, dash: "dot", width: 1 }, hoverinfo: "skip", showlegend: false },
        curve(data.best, "most believed class", c.neutral, "square"), curve(data.labels, "stored label", c.accent, "circle"),
      ], layout(c, { showlegend: true, margin: { l: 58, r: 12, t: 44, b: 44 }, xaxis: { range: [0, 1.02], title: { text: "belief" } }, yaxis: { range: [0, 1.04], tickformat: ".0%", title: { text: "right" } } })];
    },
    curve(data, c) {
      const points = data.points.filter((p) => p.accuracy).sort((a, b) => a.evaluations - b.evaluations);
      const x = points.map((p) => p.share), traces = [];
      const sure = points.filter((p) => p.accuracy.low !== null);
      if (sure.length > 1) traces.push({ x: [...sure.map((p) => p.share), ...sure.map((p) => p.share).reverse()], y: [...sure.map((p) => p.accuracy.high), ...sure.map((p) => p.accuracy.low).reverse()], fill: "toself", fillcolor: faint(c.accent, 0.15), line: { width: 0 }, mode: "lines", hoverinfo: "skip" });
      traces.push({ x, y: points.map((p) => p.accuracy.value), mode: "lines+markers", line: { color: c.accent, width: 2 }, marker: { color: c.accent, size: 6 }, text: points.map((p) => `${plain(p.budget)}: ${percent(p.accuracy.value)}<br>${whole(p.evaluations)} items`), hoverinfo: "text" });
      if (points.length && points[0].accuracy_now) traces.push({ x: [0], y: [points[0].accuracy_now.value], mode: "markers", marker: { color: c.card, size: 8, line: { color: c.accent, width: 2 } }, text: ["as it is now"], hoverinfo: "text" });
      if (data.chosen && data.chosen.accuracy) traces.push({ x: [data.chosen.share], y: [data.chosen.accuracy.value], mode: "markers", marker: { color: c.broke, size: 13, symbol: "diamond" }, text: ["your choice"], hoverinfo: "text" });
      return [traces, layout(c, { xaxis: { tickformat: ".0%", title: { text: "share of all items looked at" }, range: [-0.02, 1.03] }, yaxis: { tickformat: ".1%" } })];
    },
    trade(data, c) {
      const { chosen } = data, found = chosen && chosen.rehearsed;
      const axis = (title, apart, counts) => { const most = Math.max(1, ...counts), least = Math.min(...counts); return { title: { text: title }, tickformat: ",d", range: [Math.min(-0.04 * most, least - apart * most), 1.1 * most], ...(most <= 8 ? { dtick: 1 } : {}) }; };
      const drawn = (traces, points) => [traces, layout(c, { showlegend: true, margin: { l: 58, r: 12, t: 44, b: 44 }, xaxis: axis("broken labels", 0.2, points.map((p) => p.x)), yaxis: axis("fixed labels", 0.1, points.map((p) => p.y)) })];
      if (!found) return drawn([], [{ x: 0, y: 0 }]);
      // A rule that had its ratio chosen tells which; another has it in its name.
      const own = found.ratio === null ? parseFloat(chosen.rule.split(":")[1]) : found.ratio;
      const point = (tried, name, by = "") => ({ x: tried.broken, y: tried.fixed, name, told: `${name}${by}` });
      const ratios = [...found.choices.filter((one) => one.ratio !== own), { ...found, ratio: own }].sort((a, b) => a.ratio - b.ratio).map((one) => point(one, String(one.ratio)));
      const budgets = [...data.points.filter((p) => p.rehearsed && p.budget !== chosen.budget), chosen].sort((a, b) => a.evaluations - b.evaluations).map((p) => point(p.rehearsed, plain(p.budget), p.rehearsed.ratio === null ? "" : ` (cost ratio ${p.rehearsed.ratio})`));
      const mark = point(found), lines = ratios.length > 1 ? [budgets, ratios] : [budgets], all = lines.flat();
      // Counts are whole, so that points meet: of one is told what all say that are there.
      const there = (points, p) => points.filter((other) => other.x === p.x && other.y === p.y);
      const what = (points, p) => `${points === ratios ? "cost ratio" : "budget"} ${there(points, p).map((other) => other.told).join(", ")}`;
      const counts = (p) => `${whole(p.y)} fixed, ${whole(p.x)} broken`;
      const choice = `your choice: ${counts(mark)}<br>${what(ratios, mark)}<br>${what(budgets, mark)}`;
      const short = (points, met) => {
        const first = met[0], last = met[met.length - 1];
        if (met.length < 3) return met.map((p) => p.name).join(", ");
        return points.indexOf(last) - points.indexOf(first) < met.length ? `${first.name} … ${last.name}` : `${first.name}, …`;
      };
      const wanted = (points, right) => points.filter((p) => there(points, p)[0] === p && !there([mark], p).length).map((p) => ({ point: p, text: short(points, there(points, p)), away: 5, right }));
      const [, { xaxis, yaxis }] = drawn([], all);
      const labels = beside([{ point: mark, text: "your choice", away: 9, right: true }, ...wanted(ratios, true), ...wanted(budgets, false).reverse()], lines, xaxis.range, yaxis.range);
      const tagged = (points, otherwise) => ({ customdata: points.map((p) => (labels.get(p) || otherwise).text), texttemplate: "%{customdata}", textposition: points.map((p) => (labels.get(p) || otherwise).side), hoverinfo: "text", cliponaxis: false });
      const line = (points, name, colour, dash, symbol) => ({
        name, mode: "lines+markers+text", x: points.map((p) => p.x), y: points.map((p) => p.y), line: { color: colour, width: 2, dash }, marker: { color: colour, size: 7, symbol },
        // Below a pointer the smaller of two marks comes first, so that all there tell of the choice.
        text: points.map((p) => (there([mark], p).length ? choice : `${what(points, p)}<br>${counts(p)}`)), textfont: { color: colour, size: 11 }, ...tagged(points, { text: "", side: "top left" }),
      });
      const traces = [
        line(budgets, `by budget (${plain(chosen.rule)})`, c.accent, "solid", "circle"),
        line(ratios, `by cost ratio (budget ${plain(chosen.budget)})`, c.ink, "dot", "square"),
        { name: "your choice", showlegend: false, mode: "markers+text", x: [mark.x], y: [mark.y], marker: { color: c.broke, size: 13, symbol: "diamond" }, text: [choice], textfont: { color: c.broke, size: 12 }, ...tagged([mark], { text: "your choice", side: "bottom right" }) },
      ];
      return drawn(ratios.length > 1 ? traces : [traces[0], traces[2]], all);
    },
    gains(data, c) {
      const points = data.points.filter((p) => p.fixed).sort((a, b) => a.evaluations - b.evaluations);
      const names = points.map((p) => p.budget), x = points.map((_, at) => at);
      const side = (kind, colour, sign) => ({ type: "bar", name: kind, x, y: points.map((p) => sign * p[kind].value), marker: { color: colour, opacity: points.map((p) => (data.chosen && p.budget === data.chosen.budget ? 1 : 0.55)) }, text: points.map((p) => `${p.budget}: ${number(p[kind].value)} ${kind} (${number(p[kind].low)} to ${number(p[kind].high)})`), textposition: "none", hoverinfo: "text" });
      return [[side("fixed", c.fixed, 1), side("broke", c.broke, -1)], layout(c, { barmode: "relative", bargap: 0.3, xaxis: { tickmode: "array", tickvals: x, ticktext: names, title: { text: "budget" }, showgrid: false }, yaxis: { tickformat: ",.0f" } })];
    },
  };

  const drawn = new Map();
  let paper = false;
  // Pixels that fit into a column of A4 and of Letter; a picture is drawn before paper is measured.
  const onSheet = (figure) => (paper ? { autosize: false, width: figure.classList.contains("wide") ? 630 : 300, height: figure.querySelector(".plot").clientHeight } : {});
  function draw(figure, data) {
    const place = figure.querySelector(".plot");
    const made = kinds[figure.dataset.chart](data, colours());
    drawn.set(figure, data);
    if (made === null) { tell(place, data && data.error ? data.error : "There is nothing to show yet."); return; }
    if (!place.classList.contains("js-plotly-plot")) place.replaceChildren();
    inWords(figure.querySelector("details"), made[0]);
    return Plotly.react(place, made[0], { ...made[1], ...onSheet(figure) }, CONFIG);
  }
  // What a pointer would be told of each mark, for those who read: made when it is asked for.
  function inWords(details, traces) {
    if (!details) return;
    const list = details.querySelector("ul");
    const fill = () => { if (details.open) list.replaceChildren(...words(traces).map((text) => { const line = document.createElement("li"); line.textContent = text; return line; })); };
    details.ontoggle = fill;
    fill();
  }
  function words(traces) {
    const found = new Set();
    for (const trace of traces) {
      const flat = (trace.text || []).flat(), worth = (trace.z || []).flat();
      flat.forEach((text, at) => { if (text && (!worth.length || worth[at])) found.add(text.replace(/<br>/g, "; ").replace(/&#36;/g, "$").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&")); });
    }
    const listed = [...found];
    return listed.length > MOST_WORDS ? [...listed.slice(0, MOST_WORDS), `and ${whole(listed.length - MOST_WORDS)} more; all are in this page as JSON`] : listed;
  }
  function tell(place, text) {
    const told = document.createElement("p");
    told.className = "waiting";
    told.textContent = text;
    place.replaceChildren(told);
  }
  function again() { for (const [figure, data] of drawn) draw(figure, data); }

  // Asks the server; whatever goes wrong is told in words: { told } or { error }.
  async function ask(where, body) {
    try {
      const answer = await fetch(where, body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: typeof body === "string" ? body : JSON.stringify(body) });
      // What takes long is kept, and there when it is asked for again.
      if (answer.status === 503 && answer.headers.has("Retry-After")) {
        await new Promise((done) => setTimeout(done, 1000 * answer.headers.get("Retry-After")));
        return ask(where, body);
      }
      const told = await answer.json();
      return answer.ok ? { told } : { error: `${told.error.message} ${told.error.hint || ""}`.trim() };
    } catch (error) { return { error: `The server does not answer as it should (${error.message}). Is it still running?` }; }
  }

  async function fill(figure) {
    const held = figure.querySelector('script[type="application/json"]');
    if (held) return draw(figure, JSON.parse(held.textContent));
    const place = figure.querySelector(".plot");
    tell(place, "Calculating …");
    const { told, error } = await ask(figure.dataset.source);
    if (error) tell(place, error);
    else return draw(figure, told);
  }
  const all = () => Promise.all([...document.querySelectorAll("figure.chart")].map(fill));

  document.addEventListener("posterity:theme", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  SMALL.addEventListener("change", again);
  // On paper colours are those of the light theme, and pictures as wide as their column there.
  function onPaper(printing) {
    const before = root.dataset.theme;
    paper = printing;
    if (printing) { root.dataset.before = before || ""; root.dataset.theme = "light"; }
    else if ("before" in root.dataset) { if (root.dataset.before) root.dataset.theme = root.dataset.before; else delete root.dataset.theme; delete root.dataset.before; }
    again();
  }
  addEventListener("beforeprint", () => onPaper(true));
  addEventListener("afterprint", () => onPaper(false));

  return { all, ask, draw, number, whole, percent };
})();
