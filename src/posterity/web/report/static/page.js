// What every page does once it is there: draw its pictures, ask for what takes longer, say it is done.
"use strict";
(async function () {
  const { ask, number, whole, percent } = Posterity;
  const between = (told) => (told.low === null ? "" : ` (${number(told.low)} to ${number(told.high)})`);

  async function outlook() {
    const place = document.getElementById("outlook");
    if (!place) return;
    const { told, error } = await ask(place.dataset.source);
    const text = document.createElement("p");
    if (error) text.textContent = error;
    else if (!told.outlook) text.textContent = "Every registered model has looked at everything. Register a better one to go on.";
    else {
      const o = told.outlook;
      text.className = "lead";
      text.append(`${o.model} on ${whole(o.evaluations)} of ${whole(o.eligible)} items (${o.budget}, ${o.rule})`);
      if (o.cost !== null) text.append(`, for ${o.cost.toPrecision(4).replace(/\.?0+$/, "")}`);
      if (o.fixed) text.append(`, would fix about ${number(o.fixed.value)}${between(o.fixed)} labels and break ${number(o.broke.value)}${between(o.broke)}` + (o.accuracy ? `: expected accuracy ${percent(o.accuracy_now.value)} → ${percent(o.accuracy.value)}.` : "."));
      else text.append(`. ${o.note}`);
      const link = document.createElement("a");
      link.href = `planner?model=${encodeURIComponent(o.model)}`;
      link.textContent = "Try other budgets";
      text.append(" ", link);
    }
    place.replaceChildren(text);
  }

  // A picture that cannot be shown leaves only the words beside it.
  for (const image of document.querySelectorAll(".payload-picture")) {
    const gone = () => image.remove();
    if (image.complete && !image.naturalWidth && image.loading !== "lazy") gone();
    image.addEventListener("error", gone);
  }

  const asking = document.getElementById("confirm");
  for (const button of document.querySelectorAll("[data-revert]")) {
    button.addEventListener("click", function () {
      const step = Number(button.dataset.revert);
      document.getElementById("confirm-text").textContent = `Step ${step} will no longer count. Labels it changed are decided again from the votes that are left; nothing is lost, and the revert can be reverted.`;
      asking.returnValue = "cancel";
      asking.showModal();
      asking.onclose = async function () {
        if (asking.returnValue !== "yes") return;
        button.disabled = true;
        button.textContent = "Reverting …";
        const { error } = await ask("reverts", { step });
        if (!error) { location.reload(); return; }
        button.disabled = false;
        button.textContent = "Revert";
        document.getElementById("announce").textContent = error;
        alert(error);
      };
    });
  }

  const waits = [Posterity.all(), outlook()];
  await Promise.allSettled(waits);
  if (!document.getElementById("plan")) document.documentElement.dataset.ready = "1";
})();
