// Draws each figure from the JSON beside it. The library comes before this script, in the same page.
"use strict";
for (const figure of document.querySelectorAll("figure")) {
  const { data, layout } = JSON.parse(figure.querySelector("script").textContent);
  const options = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
  Plotly.newPlot(figure.querySelector(".plot"), data, layout, options);
}
