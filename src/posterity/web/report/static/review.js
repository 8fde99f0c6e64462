// The queue, one item at a time. Answers wait here until they are saved or taken as a file.
"use strict";
(function () {
  const cards = [...document.querySelectorAll("#queue .card")];
  if (!cards.length) return;
  const at = (id) => document.getElementById(id);
  const known = new Set(JSON.parse(at("known").textContent));
  // Of this store: another one may be served at the same address tomorrow.
  const kept = `posterity-answers ${at("queue").dataset.store}`;
  let answers = new Map(), place = 0;
  try { answers = new Map(JSON.parse(sessionStorage.getItem(kept) || "[]")); } catch { /* begin anew */ }

  // Ids stay as the store wrote them: JavaScript would round a long number.
  const key = (card) => card.dataset.id;
  const idOf = (id) => (id.startsWith('"') ? JSON.parse(id) : id);
  function show(move) {
    place = Math.max(0, Math.min(cards.length - 1, place + move));
    cards.forEach((card, n) => { card.hidden = n !== place; });
    const card = cards[place];
    for (const button of card.querySelectorAll("[data-answer]")) button.setAttribute("aria-pressed", String(answers.get(key(card)) === button.dataset.answer));
    const bar = document.querySelector(".progress");
    const done = cards.filter((one) => answers.has(key(one))).length;
    bar.setAttribute("aria-valuenow", String(done));
    bar.firstElementChild.style.setProperty("--done", String(done / cards.length));
    if (move) card.querySelector("h2").focus();
  }
  // CSV as everybody reads it; what a spreadsheet would read as a formula stays what it is.
  const cell = (text) => (/[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  function tally() {
    const list = [...answers];
    try { sessionStorage.setItem(kept, JSON.stringify(list)); } catch { /* only while the page is open */ }
    at("tally").textContent = list.length ? `${list.length} answers, not saved yet.` : "None yet.";
    if (at("save")) at("save").disabled = !list.length;
    at("download").hidden = at("forget").hidden = !list.length;
    if (at("download").href) URL.revokeObjectURL(at("download").href);
    const rows = ["id,answer", ...list.map(([id, answer]) => `${cell(idOf(id))},${cell(answer)}`)];
    at("download").href = URL.createObjectURL(new Blob([rows.join("\r\n") + "\r\n"], { type: "text/csv" }));
  }
  function answer(text) {
    if (!known.has(text)) { at("announce").textContent = `There is no class ${text}`; return false; }
    answers.set(key(cards[place]), text);
    at("announce").textContent = `Answered ${text}`;
    tally();
    show(1);
    return true;
  }
  for (const card of cards) {
    for (const button of card.querySelectorAll("[data-answer]")) button.addEventListener("click", () => answer(button.dataset.answer));
    const other = card.querySelector(".other");
    other.addEventListener("submit", function (event) {
      event.preventDefault();
      const input = other.querySelector("input");
      const good = answer(input.value);
      input.setCustomValidity(good ? "" : "No class of this store is called so.");
      if (!good) input.reportValidity(); else input.value = "";
    });
    other.querySelector("input").addEventListener("input", (event) => event.target.setCustomValidity(""));
  }
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !at("keys").checked) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) { if (event.key === "Escape") event.target.blur(); return; }
    const card = cards[place];
    if (/^[1-9]$/.test(event.key)) card.querySelectorAll("[data-answer]")[Number(event.key) - 1]?.click();
    else if (event.key === "s" || event.key === "ArrowRight") show(1);
    else if (event.key === "ArrowLeft") show(-1);
    else if (event.key === "u") { answers.delete(key(card)); tally(); show(0); }
    else if (event.key === "/") card.querySelector(".other input").focus();
    else return;
    event.preventDefault();
  });
  at("forget").addEventListener("click", () => { answers.clear(); tally(); show(0); });
  if (at("save")) at("save").addEventListener("click", async function () {
    at("save").disabled = true;
    at("saved").textContent = "Saving …";
    const list = [...answers].map(([id, text]) => `{"id":${id},"answer":${JSON.stringify(text)}}`);
    const { told, error } = await Posterity.ask("answers", `{"answers":[${list}]}`);
    if (error) { at("save").disabled = false; at("saved").textContent = error; return; }
    answers.clear();
    tally();
    at("saved").textContent = told.told;
    setTimeout(() => location.reload(), 1500);
  });
  tally();
  show(0);
})();
