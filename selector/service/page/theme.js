// Before anything is drawn: light or dark, as chosen or as the system says.
(() => {
  const KEY = "tensor-selector.theme";
  const ORDER = ["system", "light", "dark"];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = "system";
  try {
    chosen = localStorage.getItem(KEY) ?? chosen;
  } catch {
    // forbidden: as the system says
  }
  if (!ORDER.includes(chosen)) chosen = "system";

  function show() {
    const now = chosen === "system" ? (dark.matches ? "dark" : "light") : chosen;
    document.documentElement.dataset.theme = now;
    const button = document.getElementById("theme");
    for (const name of button ? ["aria-label", "title"] : []) button.setAttribute(name, `Theme: ${chosen} (t)`);
  }
  function next() {
    chosen = ORDER[(ORDER.indexOf(chosen) + 1) % ORDER.length];
    try {
      localStorage.setItem(KEY, chosen);
    } catch {
      // it holds until the page is left
    }
    show();
  }
  dark.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme").addEventListener("click", next);
  });
  show();
})();
