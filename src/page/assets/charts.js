// Draws curves from the JSON in #curves with dygraphs. An element of the list:
//   {id, title, small, percent, y: [{key, label, digits, unit, scale}], x: [{key, label}],
//    series: [{name, colour, points: [{step, tokens, seconds, <y key>: value or null}]}]}
(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("curves").textContent);
  var style = getComputedStyle(document.documentElement);
  function css(name) { return style.getPropertyValue("--" + name).trim(); }
  var all = [];
  // Small charts share one set of controls, above the first of them.
  var shared = { kept: Page.kept("charts") || {}, bar: null, updates: [] };

  function key(colour) {
    var node = document.createElement("span");
    node.className = "key";
    node.style.background = colour;
    return node;
  }

  // 25000 as 25k
  function short(value) {
    var size = Math.abs(value);
    return size >= 1e6 ? +(value / 1e6).toFixed(2) + " M" : size >= 1e4 ? +(value / 1e3).toFixed(1) + "k" :
      size >= 0.01 || size === 0 ? String(+value.toFixed(3)) : value.toExponential(1);
  }

  function text(node, value) {
    node.textContent = value;
    return node;
  }

  // One row for each x that some series has; a series without a value there is null. A smoothed value is the
  // exponential moving average with that weight, without its bias at the start.
  function rows(chart, x, y, smoothing) {
    var at = new Map();
    chart.series.forEach(function (series, column) {
      var mean = 0, weight = 0;
      series.points.forEach(function (point) {
        if (point[y] === null || point[y] === undefined) return;
        mean = smoothing * mean + (1 - smoothing) * point[y];
        weight = smoothing * weight + (1 - smoothing);
        if (!at.has(point[x])) at.set(point[x], new Array(chart.series.length).fill(null));
        at.get(point[x])[column] = mean / weight;
      });
    });
    return Array.from(at.keys()).sort(function (a, b) { return a - b; }).map(function (key) { return [key].concat(at.get(key)); });
  }

  // dygraphs cannot place what is not positive on a log scale, and takes a range that begins at 0 for one.
  function positive(table) {
    return table.map(function (row) { return [row[0]].concat(row.slice(1).map(function (v) { return v > 0 ? v : null; })); });
  }
  function log_range(table) {
    var all = [].concat.apply([], table.map(function (row) { return row.slice(1).filter(function (v) { return v !== null; }); }));
    if (all.length === 0) return null;
    var low = all.reduce(function (a, b) { return Math.min(a, b); }), high = all.reduce(function (a, b) { return Math.max(a, b); });
    return [low / 1.1, high * 1.1];
  }

  function buttons(parent, label, options, chosen, choose) {
    var group = document.createElement("span");
    group.className = "choice";
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", label);
    group.appendChild(text(document.createElement("span"), label));
    options.forEach(function (option) {
      var button = text(document.createElement("button"), option.label);
      button.type = "button";
      button.setAttribute("aria-pressed", String(option.key === chosen));
      button.addEventListener("click", function () {
        group.querySelectorAll("button").forEach(function (other) { other.setAttribute("aria-pressed", "false"); });
        button.setAttribute("aria-pressed", "true");
        choose(option.key);
      });
      group.appendChild(button);
    });
    parent.appendChild(group);
  }

  // With a range selector, dragging pans by default; here it zooms. One finger scrolls the page.
  var zooming = Object.assign({}, Dygraph.defaultInteractionModel);
  ["touchstart", "touchmove", "touchend"].forEach(function (name) { delete zooming[name]; });

  function draw(chart) {
    var place = document.getElementById(chart.id);
    if (!place) return;
    var has = function (y) {
      return chart.series.some(function (series) { return series.points.some(function (p) { return p[y] !== null && p[y] !== undefined; }); });
    };
    chart.y.forEach(function (y) {
      if (y.scale) chart.series.forEach(function (s) { s.points.forEach(function (p) { if (p[y.key] !== null) p[y.key] *= y.scale; }); });
    });
    var choices = chart.y.filter(function (y) { return has(y.key); });
    if (choices.length === 0) {
      place.appendChild(text(document.createElement("p"), "No curves were recorded."));
      return;
    }
    // A single evaluation is not a curve.
    var curved = choices.filter(function (y) {
      return chart.series.some(function (s) { return s.points.filter(function (p) { return p[y.key] !== null && p[y.key] !== undefined; }).length > 1; });
    });
    var kept = Object.assign({}, Page.kept(chart.id), chart.small ? shared.kept : {});
    function find(list, wanted) { return list.find(function (item) { return item.key === wanted; }); }
    var y = find(choices, kept.y) || curved[0] || choices[0], x = find(chart.x, kept.x) || chart.x[0];
    var smoothing = kept.smoothing || 0, hidden = (kept.hidden || []).length < chart.series.length ? kept.hidden || [] : [], log = !!kept.log;

    var controls = document.createElement("div"), series = document.createElement("div");
    var box = document.createElement("div"), readout = document.createElement("div"), rule = document.createElement("div");
    controls.className = "controls noprint";
    series.className = "series";
    box.className = "chart" + (chart.small ? " small" : "");
    box.setAttribute("role", "img");
    rule.className = "rule";
    readout.className = "readout noprint";
    [controls, series, box, readout].forEach(function (node) { place.appendChild(node); });
    function keep() {
      if (chart.small) Page.keep("charts", { x: x.key, smoothing: smoothing });
      Page.keep(chart.id, { x: x.key, y: y.key, smoothing: smoothing, hidden: hidden, log: log, window: graph.isZoomed("x") ? graph.xAxisRange() : null });
    }
    function shown(value) { return y.digits === undefined ? short(value) : value.toFixed(y.digits) + (y.unit || ""); }
    function describe() {
      box.setAttribute("aria-label", y.label + " over " + x.label + ": " + chart.series.map(function (s) {
        var last = s.points.filter(function (p) { return p[y.key] !== null && p[y.key] !== undefined; }).pop();
        return s.name + " " + (last ? shown(last[y.key]) + " at the end" : "none");
      }).join("; "));
    }

    var points = chart.series.every(function (s) { return s.points.length < 60; });
    function table() {
      var all = rows(chart, x.key, y.key, smoothing);
      return log ? positive(all) : all;
    }
    if (log && !log_range(table())) log = false;
    var graph = new Dygraph(box, table(), Object.assign({
      labels: ["x"].concat(chart.series.map(function (s) { return s.name; })),
      colors: chart.series.map(function (s) { return s.colour; }),
      visibility: chart.series.map(function (s) { return hidden.indexOf(s.name) < 0; }),
      xlabel: x.label, ylabel: y.label, logscale: log, valueRange: log ? log_range(table()) : null, dateWindow: kept.window || null,
      strokeWidth: 2, connectSeparatedPoints: true, legend: "never", gridLineColor: css("grid"), axisLineColor: css("axis"),
      drawPoints: points, pointSize: 2.5, highlightCircleSize: 4, rightGap: 12,
      axes: { x: { axisLabelFormatter: short }, y: { axisLabelWidth: 60, axisLabelFormatter: short } },
      interactionModel: zooming,
      zoomCallback: function () { keep(); },
      highlightCallback: function (event, at, points, row, name) { show(at, points, name); follow(at); },
      unhighlightCallback: function () { rest(); others(function (other) { other.rest(); }); }
    }, chart.series.length > 1 ? { highlightSeriesOpts: { strokeWidth: 3 } } : {}, chart.small ? {} : {
      showRangeSelector: true, rangeSelectorHeight: 28, rangeSelectorPlotStrokeColor: css("accent"),
      rangeSelectorPlotFillColor: css("grid"), rangeSelectorPlotFillGradientColor: css("page"), rangeSelectorForegroundStrokeColor: css("soft")
    }));
    box.appendChild(rule);
    var self = { graph: graph, rest: rest, at: function (value) {
      var found = graph.numRows() > 0 ? nearest(value) : null;
      if (found === null) return;
      graph.setSelection(found);
      show(graph.getValue(found, 0), chart.series.map(function (s, i) {
        return { name: s.name, yval: graph.getValue(found, i + 1) };
      }).filter(function (p) { return p.yval !== null && !isNaN(p.yval); }), null);
    }, x: function () { return x.key; } };
    all.push(self);
    function nearest(value) {
      var low = 0, high = graph.numRows() - 1;
      while (low < high) {
        var middle = (low + high) >> 1;
        if (graph.getValue(middle, 0) < value) low = middle + 1; else high = middle;
      }
      return low;
    }
    function others(act) { if (chart.small) all.forEach(function (other) { if (other !== self) act(other); }); }
    function follow(at) { others(function (other) { if (other.x() === x.key) other.at(at); }); }
    function show(at, points, name) {
      var area = graph.getArea(), left = graph.toDomXCoord(at);
      rule.style.display = left >= area.x && left <= area.x + area.w ? "block" : "none";
      rule.style.left = left + "px";
      rule.style.height = area.h + "px";
      readout.textContent = "";
      readout.appendChild(document.createTextNode(x.label + " " + (+at.toFixed(2)).toLocaleString("en")));
      points.forEach(function (point) {
        var part = document.createElement(point.name === name ? "b" : "span");
        part.appendChild(key(chart.series.find(function (s) { return s.name === point.name; }).colour));
        part.appendChild(document.createTextNode(point.name + " " + shown(point.yval)));
        readout.appendChild(part);
      });
    }
    function rest() {
      rule.style.display = "none";
      graph.clearSelection();
      text(readout, chart.small ? "" : "Drag to zoom (on a phone: the handles below the curves), double-click to zoom out, hold shift and drag to move. Click a name to show or hide its curve.");
    }
    rest();
    describe();

    function update(zoomsOut) {
      if (log && !log_range(table())) log = false;
      scale.setAttribute("aria-pressed", String(log));
      graph.updateOptions(Object.assign({ file: table(), xlabel: x.label, ylabel: y.label, logscale: log, valueRange: log ? log_range(table()) : null },
        zoomsOut ? { dateWindow: null } : {}));
      describe();
      keep();
    }
    if (choices.length > 1) buttons(controls, "curve", choices, y.key, function (value) { y = find(choices, value); update(true); });
    shared.updates.push(function (to) {
      var zooms = to.x !== undefined;
      if (to.x !== undefined) x = find(chart.x, to.x) || x;
      if (to.smoothing !== undefined) smoothing = to.smoothing;
      update(zooms);
    });
    var own = shared.updates[shared.updates.length - 1];
    function tell(change) { chart.small ? shared.updates.forEach(function (act) { act(change); }) : own(change); }
    function common(bar) {
      if (chart.x.length > 1) buttons(bar, "over", chart.x, x.key, function (value) { tell({ x: value }); });
      var label = document.createElement("label"), slider = document.createElement("input");
      Object.assign(slider, { type: "range", min: 0, max: 0.98, step: 0.02, value: smoothing });
      slider.addEventListener("input", function () { tell({ smoothing: +slider.value }); });
      label.appendChild(document.createTextNode("smoothing"));
      label.appendChild(slider);
      bar.appendChild(label);
    }
    if (!chart.small) {
      common(controls);
    } else if (!shared.bar) {
      shared.bar = document.createElement("div");
      shared.bar.className = "controls noprint";
      common(shared.bar);
      (place.closest(".charts") || place).before(shared.bar);
    }
    var scale = text(document.createElement("button"), "log scale");
    scale.type = "button";
    scale.setAttribute("aria-pressed", String(log));
    scale.addEventListener("click", function () {
      log = !log;
      update(false);
    });
    if (!chart.small) controls.appendChild(scale);
    chart.series.forEach(function (s, i) {
      var button = document.createElement("button");
      button.type = "button";
      button.appendChild(key(s.colour));
      button.appendChild(document.createTextNode(s.name));
      button.setAttribute("aria-pressed", String(hidden.indexOf(s.name) < 0));
      button.addEventListener("click", function () {
        var on = button.getAttribute("aria-pressed") !== "true";
        // One curve stays: dygraphs draws no empty chart.
        if (!on && graph.visibility().filter(Boolean).length === 1) return;
        button.setAttribute("aria-pressed", String(on));
        hidden = hidden.filter(function (name) { return name !== s.name; });
        if (!on) hidden.push(s.name);
        graph.setVisibility(i, on);
        keep();
      });
      series.appendChild(button);
    });
    if (chart.series.length < 2) series.remove();
    var bar = Page.tools(place, chart.title, {
      svg: function () { return drawing(chart, graph, x, y); },
      csv: function () {
        var list = [[x.label].concat(chart.series.map(function (s) { return s.name; }))];
        rows(chart, x.key, y.key, 0).forEach(function (row) { list.push(row.map(function (v) { return v === null ? "" : String(v); })); });
        return list;
      }
    });
    if (chart.small) {
      scale.setAttribute("aria-label", "Log scale of " + chart.title);
      bar.prepend(scale);
      controls.remove();
    }
    window.addEventListener("beforeprint", function () { graph.resize(); });
    // A chart inside a closed <details> has no width until it is opened.
    var folded = place.closest("details");
    if (folded) folded.addEventListener("toggle", function () { graph.resize(); });
  }

  // Draws the visible part of a chart as SVG: axes with ticks, curves, names.
  function drawing(chart, graph, x, y) {
    var width = 900, height = 480, left = 74, right = 16, top = 16, bottom = 52;
    var series = chart.series.filter(function (s, i) { return graph.visibility()[i]; });
    var range = graph.xAxisRange(), values = graph.yAxisRange(), log = graph.getOption("logscale");
    function scaled(v) { return log ? Math.log(v) : v; }
    function at(v) { return left + (v - range[0]) / ((range[1] - range[0]) || 1) * (width - left - right); }
    function up(v) { return height - bottom - (scaled(v) - scaled(values[0])) / ((scaled(values[1]) - scaled(values[0])) || 1) * (height - top - bottom); }
    function escape(s) { return String(s).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;"); }
    var legend = Math.ceil(series.length / 3) * 20;
    var svg = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ' + width + " " + (height + legend) + '" width="' + width + '" height="' + (height + legend) +
      '" font-family="sans-serif" font-size="12" fill="#566372"><rect width="100%" height="100%" fill="#fff"/>';
    svg += '<clipPath id="area"><rect x="' + left + '" y="' + top + '" width="' + (width - left - right) + '" height="' + (height - top - bottom) + '"/></clipPath>';
    function ticks(low, high) {
      var raw = (high - low) / 6, power = Math.pow(10, Math.floor(Math.log10(raw || 1))), step = power * (raw / power < 1.5 ? 1 : raw / power < 3.5 ? 2 : raw / power < 7.5 ? 5 : 10), list = [];
      for (var v = Math.ceil(low / step) * step; v <= high + 1e-12 && list.length < 50; v += step) list.push(Math.abs(v) < step * 1e-9 ? 0 : v);
      return list;
    }
    ticks(values[0], values[1]).forEach(function (v) {
      if (log && v <= 0) return;
      svg += '<path d="M' + left + " " + up(v).toFixed(1) + "H" + (width - right) + '" stroke="#e6ebf0"/><text x="' + (left - 8) + '" y="' + (up(v) + 4).toFixed(1) + '" text-anchor="end">' + short(v) + "</text>";
    });
    ticks(range[0], range[1]).forEach(function (v) {
      svg += '<path d="M' + at(v).toFixed(1) + " " + (height - bottom) + 'v5" stroke="#b9c3ce"/><text x="' + at(v).toFixed(1) + '" y="' + (height - bottom + 19) + '" text-anchor="middle">' + short(v) + "</text>";
    });
    svg += '<path d="M' + left + " " + (height - bottom) + "H" + (width - right) + '" stroke="#b9c3ce"/><text x="' + (left + (width - left - right) / 2) + '" y="' + (height - 12) + '" text-anchor="middle" font-size="13">' + escape(x.label) + "</text>";
    svg += '<text transform="translate(16 ' + (top + (height - top - bottom) / 2) + ') rotate(-90)" text-anchor="middle" font-size="13">' + escape(y.label) + '</text><g clip-path="url(#area)">';
    var column = {};
    graph.getLabels().forEach(function (name, i) { column[name] = i; });
    series.forEach(function (s) {
      var path = "";
      for (var row = 0; row < graph.numRows(); ++row) {
        var v = graph.getValue(row, column[s.name]);
        if (v !== null && !isNaN(v) && !(log && v <= 0)) path += at(graph.getValue(row, 0)).toFixed(1) + "," + up(v).toFixed(1) + " ";
      }
      svg += '<polyline points="' + path + '" fill="none" stroke="' + escape(s.colour) + '" stroke-width="2"/>';
    });
    svg += "</g>";
    series.forEach(function (s, i) {
      var place = left + (i % 3) * 270, line = height + Math.floor(i / 3) * 20;
      svg += '<rect x="' + place + '" y="' + line + '" width="11" height="11" rx="3" fill="' + escape(s.colour) + '"/><text x="' + (place + 17) + '" y="' + (line + 10) + '" fill="#1d2733">' + escape(s.name) + "</text>";
    });
    return svg + "</svg>";
  }

  data.forEach(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () {
    all.forEach(function (chart) { chart.graph.updateOptions({ gridLineColor: css("grid"), axisLineColor: css("axis") }); });
  });
})();
