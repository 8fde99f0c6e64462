// Light or dark as the machine has it, unless somebody has chosen; before anything is drawn.
"use strict";
(function () {
  const root = document.documentElement;
  let chosen = null;
  try { chosen = localStorage.getItem("posterity-theme"); } catch { /* no storage: as the machine */ }
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  document.addEventListener("DOMContentLoaded", function () {
    const button = document.getElementById("theme");
    if (!button) return;
    button.addEventListener("click", function () {
      const dark = root.dataset.theme
        ? root.dataset.theme === "dark"
        : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      try { localStorage.setItem("posterity-theme", root.dataset.theme); } catch { /* for now */ }
      document.dispatchEvent(new Event("posterity:theme"));
    });
  });
})();
// Plotly sets some styles by attribute, which the policy forbids; as properties it allows them.
(function () {
  const set = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (name === "style") this.style.cssText = value;
    else set.call(this, name, value);
  };
})();
