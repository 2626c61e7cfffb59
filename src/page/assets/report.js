// Draws the training curves of a report from the JSON beside it, with dygraphs.
(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("curves").textContent);

  function number(value, digits) {
    return value === null || value === undefined ? "–" : value.toFixed(digits);
  }

  function key(colour) {
    var node = document.createElement("span");
    node.className = "key";
    node.style.background = colour;
    return node;
  }

  // 25000 as 25k
  function short(value) {
    return value >= 1e6 ? +(value / 1e6).toFixed(2) + " M" : value >= 1e4 ? +(value / 1e3).toFixed(1) + "k" : String(+value.toFixed(2));
  }

  function text(node, value) {
    node.textContent = value;
    return node;
  }

  // One row for each x that some series has; a series without a value there is null.
  function rows(study, x, y) {
    var at = new Map();
    study.series.forEach(function (series, column) {
      series.points.forEach(function (point) {
        if (point[y] === null) return;
        if (!at.has(point[x])) at.set(point[x], new Array(study.series.length).fill(null));
        at.get(point[x])[column] = point[y];
      });
    });
    return Array.from(at.keys()).sort(function (a, b) { return a - b; }).map(function (key) {
      return [key].concat(at.get(key));
    });
  }

  function buttons(parent, label, options, chosen, choose) {
    var group = document.createElement("span");
    group.className = "choice";
    group.appendChild(text(document.createElement("span"), label));
    options.forEach(function (option) {
      var button = text(document.createElement("button"), option.label);
      button.setAttribute("aria-pressed", String(option.value === chosen));
      button.addEventListener("click", function () {
        group.querySelectorAll("button").forEach(function (other) { other.setAttribute("aria-pressed", "false"); });
        button.setAttribute("aria-pressed", "true");
        choose(option.value);
      });
      group.appendChild(button);
    });
    parent.appendChild(group);
  }

  // With a range selector, dragging pans by default; here it zooms. One finger scrolls the page.
  var zooming = Object.assign({}, Dygraph.defaultInteractionModel);
  ["touchstart", "touchmove", "touchend"].forEach(function (name) { delete zooming[name]; });

  data.forEach(function (study) {
    var place = document.getElementById(study.id);
    var has = function (y) {
      return study.series.some(function (series) { return series.points.some(function (p) { return p[y] !== null; }); });
    };
    var scale = study.percent ? 100 : 1, unit = study.percent ? " %" : "", digits = study.percent ? 1 : 3;
    study.series.forEach(function (series) {
      series.points.forEach(function (point) { if (point.held_out !== null) point.held_out *= scale; });
    });
    // A single evaluation is not a curve.
    var evaluated = study.series.some(function (series) { return series.points.filter(function (p) { return p.held_out !== null; }).length > 1; });
    var x = "tokens", y = has("held_out") && (evaluated || !has("train")) ? "held_out" : "train";
    if (!has(y)) {
      place.appendChild(text(document.createElement("p"), "No curves were recorded."));
      return;
    }
    var controls = document.createElement("div"), series = document.createElement("div");
    var chart = document.createElement("div"), readout = document.createElement("div");
    controls.className = "controls noprint";
    series.className = "series";
    chart.className = "chart";
    readout.className = "readout";
    [controls, series, chart, readout].forEach(function (node) { place.appendChild(node); });

    var names = { held_out: study.held_out, train: study.train, tokens: "training " + study.counted, seconds: "seconds of training", step: "steps" };
    var graph = new Dygraph(chart, rows(study, x, y), {
      labels: ["x"].concat(study.series.map(function (s) { return s.name; })),
      colors: study.series.map(function (s) { return s.colour; }),
      xlabel: names[x], ylabel: names[y],
      strokeWidth: 2, connectSeparatedPoints: true, legend: "never", gridLineColor: "#e6ebf0", axisLineColor: "#b9c3ce",
      drawPoints: study.series.every(function (s) { return s.points.length < 60; }), pointSize: 2.5,
      highlightCircleSize: 4, highlightSeriesOpts: { strokeWidth: 3 }, rightGap: 12,
      axes: { x: { axisLabelFormatter: short }, y: { axisLabelWidth: 56 } },
      interactionModel: zooming, showRangeSelector: true, rangeSelectorHeight: 28, rangeSelectorPlotStrokeColor: "#9db4cc",
      rangeSelectorPlotFillColor: "#e3ebf4", rangeSelectorForegroundStrokeColor: "#5b6878",
      highlightCallback: function (event, at, points, row, name) {
        readout.textContent = "";
        readout.appendChild(document.createTextNode(names[x] + " " + Math.round(at).toLocaleString("en")));
        points.forEach(function (point) {
          var part = document.createElement(point.name === name ? "b" : "span");
          part.appendChild(key(study.series.find(function (s) { return s.name === point.name; }).colour));
          part.appendChild(document.createTextNode(point.name + " " + number(point.yval, y === "held_out" ? digits : 3) + (y === "held_out" ? unit : "")));
          readout.appendChild(part);
        });
      },
      unhighlightCallback: rest
    });
    function rest() { text(readout, "Drag to zoom (on a phone: the handles below the curves), double-click to zoom out, hold shift and drag to move. Click a name to show or hide its curve."); }
    rest();
    readout.classList.add("noprint");

    function show() {
      graph.updateOptions({ file: rows(study, x, y), xlabel: names[x], ylabel: names[y], dateWindow: null, valueRange: null });
    }
    if (has("held_out") && has("train")) {
      buttons(controls, "curve", [{ label: study.held_out, value: "held_out" }, { label: study.train, value: "train" }], y,
        function (value) { y = value; show(); });
    }
    buttons(controls, "over", [{ label: study.counted, value: "tokens" }, { label: "steps", value: "step" }, { label: "seconds", value: "seconds" }], x,
      function (value) { x = value; show(); });
    study.series.forEach(function (s, i) {
      var button = document.createElement("button");
      button.appendChild(key(s.colour));
      button.appendChild(document.createTextNode(s.name));
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", function () {
        var on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(on));
        graph.setVisibility(i, on);
      });
      series.appendChild(button);
    });
    window.addEventListener("beforeprint", function () { graph.resize(); });
    // A chart inside a closed <details> has no width until it is opened.
    var folded = place.closest("details");
    if (folded) folded.addEventListener("toggle", function () { graph.resize(); });
  });
})();
