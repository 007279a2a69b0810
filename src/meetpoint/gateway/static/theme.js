// Runs before the page is drawn, so that a chosen theme does not flash.
"use strict";
try {
  const chosen = localStorage.getItem("meetpoint-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // No storage: the system's theme it is.
}
