"use strict";
// Draws the page's figures and lets the reader walk through the learned functions.
// No formula stands here: every curve is a polyline through points that the library computed.

const content = JSON.parse(document.getElementById("content").textContent);
const config = { displayModeBar: false, responsive: true };
const scheme = window.matchMedia("(prefers-color-scheme: dark)");
const drawings = []; // functions that draw again, for a change of colour scheme

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function axis(more) {
  return { gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line"),
    fixedrange: true, automargin: true, ...more };
}

function themed(layout) {
  const whole = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("ink"), size: 12.5, family: "system-ui, 'DejaVu Sans', sans-serif" },
    margin: { l: 12, r: 12, t: 8, b: 12 },
    hoverlabel: {
      bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") },
    },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    ...layout,
  };
  for (const name of ["xaxis", "yaxis"]) whole[name] = axis(whole[name] || {});
  return whole;
}

function always(draw) {
  drawings.push(draw);
  draw();
}

for (const element of document.querySelectorAll("[data-figure]")) {
  const figure = content.figures[element.dataset.figure];
  always(() => Plotly.react(element, figure.data, themed(figure.layout), config));
}

// ---- what was learned ------------------------------------------------------------------------

function decode(layer) {
  // (epochs, 8, curves) float32: t_r, a_r, t_l, a_l, then the y at the four knots' places.
  if (!layer.values) {
    const bytes = Uint8Array.from(atob(layer.packed), (c) => c.charCodeAt(0));
    layer.values = new Float32Array(bytes.buffer);
  }
  return layer.values;
}

function numbers(layer, epoch, curve) {
  const values = decode(layer), curves = layer.channels + 1;
  return Array.from({ length: 8 }, (_, k) => values[(epoch * 8 + k) * curves + curve]);
}

function polyline(layer, epoch, curve) {
  // The x of the knots: both ends of the view and both thresholds, in order.
  const n = numbers(layer, epoch, curve), thresholds = [n[0], n[2]];
  const x = [layer.low, layer.high, ...thresholds].sort((a, b) => a - b);
  return { x, y: n.slice(4), sizes: x.map((v) => (thresholds.includes(v) ? 8 : 0)) };
}

function allChannels(layer, epoch) {
  const x = [], y = [];
  for (let c = 0; c < layer.channels; c++) {
    const line = polyline(layer, epoch, c);
    x.push(...line.x, null);
    y.push(...line.y, null);
  }
  return { x, y };
}

function density(layer, epoch) {
  // A histogram whose bins are the recorded quantiles: height = share of inputs / width.
  const q = layer.quantiles[epoch], p = content.learned.probabilities, x = [], y = [];
  for (let i = 0; i + 1 < q.length; i++) {
    if (q[i + 1] <= q[i]) continue;
    const height = (p[i + 1] - p[i]) / (q[i + 1] - q[i]);
    x.push(q[i], q[i + 1]);
    y.push(height, height);
  }
  return { x, y };
}

function traces(layer, epoch, chosen) {
  const under = density(layer, epoch), lines = allChannels(layer, epoch);
  const { x, y, sizes } = polyline(layer, epoch, chosen);
  const quiet = { hoverinfo: "skip", showlegend: false };
  const opacity = Math.max(0.12, Math.min(0.45, 12 / layer.channels)); // many lines, each fainter
  return [
    { ...under, yaxis: "y2", fill: "tozeroy", line: { width: 0 }, mode: "lines",
      fillcolor: colour("soft") + "38", name: "inputs", ...quiet },
    { ...lines, mode: "lines", line: { color: colour("soft"), width: 0.7 }, opacity, ...quiet },
    { x, y, mode: "lines+markers", line: { color: colour("accent"), width: 2.6 },
      marker: { color: colour("accent"), size: sizes, line: { width: 0 } },
      hovertemplate: "h(%{x:.3g}) = %{y:.3g}<extra></extra>", showlegend: false },
  ];
}

function frame(layer, epoch, small) {
  const tallest = Math.max(0, ...density(layer, epoch).y) || 1; // a dead layer has no density
  const ticks = { showticklabels: !small, ticks: "" };
  const title = (text) => (small ? undefined : { text });
  return themed({
    margin: small ? { l: 0, r: 0, t: 4, b: 4 } : { l: 12, r: 12, t: 8, b: 12 },
    xaxis: { range: [layer.low, layer.high], title: title("input"), ...ticks },
    yaxis: { range: [layer.bottom, layer.top], title: title("output"), ...ticks },
    yaxis2: {
      overlaying: "y", side: "right", range: [0, tallest * 2.2], visible: false, fixedrange: true,
    },
  });
}

function learned() {
  const pick = Object.fromEntries(
    ["run", "layer", "channel", "epoch"].map((name) => [name, document.getElementById(name)]));
  const grid = document.getElementById("layers");
  const explorer = document.getElementById("explorer");
  const play = document.getElementById("play");
  let timer = null;

  const run = () => content.learned.runs[pick.run.value];
  const layer = () => run().layers[pick.layer.value];

  function say(name, text) {
    document.getElementById(name).textContent = text;
  }

  function options(select, names) {
    const before = select.value;
    select.replaceChildren(...names.map((name, i) => new Option(name, i)));
    if (before && before < names.length) select.value = before;
  }

  function drawGrid() {
    grid.replaceChildren();
    run().layers.forEach((l, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = l.name;
      const plot = document.createElement("div");
      plot.className = "plot";
      button.append(plot);
      button.addEventListener("click", () => { pick.layer.value = i; layerChanged(); });
      grid.append(button);
      const last = l.quantiles.length - 1;
      Plotly.react(plot, traces(l, last, l.channels), frame(l, last, true),
        { ...config, staticPlot: true });
    });
    mark();
  }

  function mark() {
    [...grid.children].forEach((button, i) =>
      button.setAttribute("aria-pressed", String(i === Number(pick.layer.value))));
  }

  function drawCurve() {
    const l = layer(), epoch = Number(pick.epoch.value), channel = Number(pick.channel.value);
    const whole = channel === l.channels;
    say("channel-name", whole ? "layer mean" : `${channel + 1} of ${l.channels}`);
    say("epoch-name", `${run().epochs[epoch]}`);
    numbers(l, epoch, channel).slice(0, 4).forEach((value, k) =>
      say(["t_r", "a_r", "t_l", "a_l"][k], Number(value.toPrecision(3)).toString()));
    Plotly.react(explorer, traces(l, epoch, channel), frame(l, epoch, false), config);
  }

  function layerChanged() {
    const l = layer();
    pick.channel.max = l.channels; // one past the channels: the layer's mean
    pick.channel.value = l.channels;
    mark();
    drawCurve();
  }

  function runChanged() {
    options(pick.layer, run().layers.map((l) => l.name));
    pick.epoch.max = run().epochs.length - 1;
    pick.epoch.value = pick.epoch.max;
    drawGrid();
    layerChanged();
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶";
    play.setAttribute("aria-label", "play the epochs");
  }

  play.addEventListener("click", () => {
    if (timer) return stop();
    if (pick.epoch.value === pick.epoch.max) pick.epoch.value = 0;
    play.textContent = "⏸";
    play.setAttribute("aria-label", "pause");
    drawCurve();
    timer = setInterval(() => {
      if (Number(pick.epoch.value) >= Number(pick.epoch.max)) return stop();
      pick.epoch.value = Number(pick.epoch.value) + 1;
      drawCurve();
    }, 180);
  });

  options(pick.run, content.learned.runs.map((r) => r.name));
  pick.run.addEventListener("change", () => { stop(); runChanged(); });
  pick.layer.addEventListener("change", layerChanged);
  pick.channel.addEventListener("input", drawCurve);
  pick.epoch.addEventListener("input", () => { stop(); drawCurve(); });
  runChanged();
  drawings.push(() => { drawGrid(); drawCurve(); });
}

if (content.learned) learned();
scheme.addEventListener("change", () => drawings.forEach((draw) => draw()));
