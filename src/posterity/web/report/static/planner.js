// The planner: every move of a control asks what that step would bring.
"use strict";
(async function () {
  const form = document.getElementById("plan");
  if (!form) return;
  const { number, whole, percent } = Posterity;
  const request = Posterity.ask;
  const main = document.querySelector("main");
  const held = JSON.parse(document.getElementById("choices").textContent);
  const at = (id) => document.getElementById(id);
  const told = (name) => document.querySelector(`[data-told="${name}"]`);
  let asked = 0, curve = null;

  const ratio = () => held.ratios[at("ratio").value];
  const balanced = () => ratio() === "balanced";
  const named = held.balanced.startsWith("balanced") ? "balanced" : held.balanced;
  const choice = () => ({
    model: at("model").value,
    budget: held.budgets[at("budget").value],
    rule: balanced() ? held.balanced : `cost-ratio:${ratio()}${at("confirm").checked ? "+confirm" : ""}`,
  });
  const query = (given) => new URLSearchParams(given).toString();
  const quoted = (text) => (/^[\w.:%@+,\/-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`);
  const between = (e) => (!e || e.low === null ? "" : `${number(e.low)} to ${number(e.high)}`);

  function controls(given) {
    at("budget-told").textContent = given.budget;
    at("ratio-told").textContent = balanced() ? named : ratio();
    at("confirm").disabled = balanced();
    at("budget").setAttribute("aria-valuetext", given.budget);
    at("ratio").setAttribute("aria-valuetext", at("ratio-told").textContent);
    at("command").textContent = `posterity update ${quoted(held.path)} ${quoted(given.model)} --budget ${given.budget} --rule ${given.rule}`;
    at("elsewhere").textContent = `${at("command").textContent} --votes votes.csv`;
    for (const kind of ["parquet", "csv", "jsonl", "json"]) at(kind).href = `plan.${kind}?${query(given)}`;
  }
  function show(o) {
    told("evaluations").textContent = whole(o.evaluations);
    told("eligible").textContent = `of ${whole(o.eligible)} eligible`;
    told("cost").textContent = o.cost === null ? "–" : o.cost.toLocaleString("en", { maximumSignificantDigits: 4 });
    told("unit").textContent = o.cost === null ? "nobody has said what an evaluation costs" : "in all";
    told("accuracy").textContent = o.accuracy ? percent(o.accuracy.value) : "–";
    told("now").textContent = o.accuracy_now ? `now ${percent(o.accuracy_now.value)}${o.accuracy && o.accuracy.low !== null ? `; then ${(100 * o.accuracy.low).toFixed(1)} to ${(100 * o.accuracy.high).toFixed(1)}` : ""}` : "";
    for (const kind of ["fixed", "broke", "net"]) {
      told(kind).textContent = o[kind] ? number(o[kind].value) : "–";
      told(`${kind}-between`).textContent = between(o[kind]);
    }
    if (balanced() && o.rehearsed && o.rehearsed.ratio) at("ratio-told").textContent = `${named}: ${o.rehearsed.ratio}`;
    ratios(o.rehearsed);
    at("note").textContent = o.note;
    at("note").hidden = !o.note;
  }
  // What other cost ratios would make of the same votes, and the one in force.
  function ratios(tried) {
    const others = tried ? tried.choices : [];
    at("by-ratio").hidden = !others.length;
    if (!others.length) return;
    at("by-ratio-items").textContent = whole(tried.items);
    const rows = [...others, { ...tried, ratio: "this plan" }].map((one) => {
      const row = document.createElement("tr");
      [one.ratio, whole(one.fixed), whole(one.broken), percent(one.accuracy_after)].forEach((text, place) => {
        const cell = document.createElement(place ? "td" : "th");
        if (place) cell.className = "n"; else cell.scope = "row";
        cell.textContent = text;
        row.append(cell);
      });
      return row;
    });
    at("by-ratio-rows").replaceChildren(...rows);
  }
  // Old figures beside new controls would be a lie.
  function blank(why) {
    for (const one of document.querySelectorAll("[data-told]")) one.textContent = one.tagName === "SMALL" ? "" : "–";
    ratios(null);
    at("note").textContent = why;
    at("note").hidden = false;
  }
  function draw(points, chosen) {
    for (const kind of ["trade", "curve", "gains"]) {
      const figure = document.querySelector(`[data-chart="${kind}"]`);
      figure.hidden = !chosen.fixed;
      if (chosen.fixed) Posterity.draw(figure, { points, chosen });
    }
  }
  const same = (one, other) => one.model === other.model && one.rule === other.rule;
  const delay = (ms) => new Promise((done) => setTimeout(done, ms));

  async function ask() {
    const mine = ++asked, given = choice();
    controls(given);
    main.setAttribute("aria-busy", "true");
    const { told: o, error } = await request(`planner.json?${query(given)}`);
    if (mine !== asked) return;
    main.removeAttribute("aria-busy");
    if (error) { blank(error); return; }
    show(o.answer);
    const known = curve && same(curve, given) ? curve.points : [o.answer];
    draw(known, o.answer);
    main.dataset.answered = String(Number(main.dataset.answered || 0) + 1);
    history.replaceState(null, "", `planner?${query(given)}`);
    if (!(curve && same(curve, given))) follow(given, o.answer, mine);
  }
  // The whole curve comes point by point, once nothing else is asked for: a next move would wait
  // for the point that is being calculated.
  async function follow(given, chosen, mine) {
    await delay(250);
    for (;;) {
      if (mine !== asked || !chosen.fixed) return;
      const { told, error } = await request(`curve.json?${query({ model: given.model, rule: given.rule })}`);
      if (error || mine !== asked) return;
      draw([...told.points, ...(told.points.some((p) => p.budget === chosen.budget) ? [] : [chosen])], chosen);
      if (told.done) { curve = { model: given.model, rule: given.rule, points: told.points }; return; }
      await delay(20);
    }
  }
  form.addEventListener("input", ask);
  form.addEventListener("submit", (event) => event.preventDefault());
  at("copy").addEventListener("click", async function () {
    try { await navigator.clipboard.writeText(at("command").textContent); at("announce").textContent = "Copied"; } catch { at("announce").textContent = "Select the text to copy it"; }
  });
  if (at("keep")) at("keep").addEventListener("click", async function () {
    at("keep").disabled = true;
    at("kept").textContent = "Planning …";
    const { told: o, error } = await request("plans", choice());
    at("keep").disabled = false;
    at("kept").textContent = !error ? (o.note || `Kept as ${o.plan}: ${whole(o.evaluations)} items. Carry it out with: posterity update ${quoted(held.path)} ${quoted(o.model)} --plan ${o.plan}`) : error;
  });
  await ask();
  document.documentElement.dataset.ready = "1";
})();
