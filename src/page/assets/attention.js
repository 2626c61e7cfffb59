// Attention on the text: the rows of a map on one side, its columns on the other, and the map with its values below.
// #attention: see src/inspect/draw/attention_view.h.
(function () {
  "use strict";
  var element = Page.element, list = Page.list, halves = Page.halves;
  var data = JSON.parse(document.getElementById("attention").textContent), place = document.getElementById("attention-view");
  var KINDS = { cache: "cache", compressed: "cache", read: "read", tokens: "tokens", write: "write", "class": "class", separator: "tokens", memory: "memory", slots: "memory" };
  var TITLES = { read: "memory, read", write: "memory, written", cache: "cache", compressed: "compressed rows", tokens: "text", slots: "slots", memory: "memory", "class": "class token", separator: "separator" };

  function number(value) { return value === 0 ? "0" : Math.abs(value) < 0.001 ? value.toExponential(1) : value.toFixed(3); }

  // A token as it is read aloud: white space has signs of its own.
  function named(label) { return label.replace(/\\x0a|\\n/g, "\u21b5").replace(/\\x09|\\t/g, "\u21e5").replace(/ /g, "\u2423"); }

  if (data.maps.length === 0) return;
  function key(map) { return map.name + " " + map.layer; }
  function distinct(all) { return all.filter(function (v, i) { return all.indexOf(v) === i; }); }
  var segments = distinct(data.maps.map(function (map) { return map.segment; })).sort(function (a, b) { return a - b; });
  var groups, names, group, segment = data.segment, held = null;
  // The maps of a segment by name and layer; the same are shown as before, where it has them.
  function turn_to(number) {
    var before = group;
    segment = number;
    groups = [];
    data.maps.forEach(function (map) {
      if (map.segment !== segment) return;
      var group = groups.find(function (g) { return g.key === key(map); });
      if (!group) groups.push(group = { key: key(map), name: map.name, layer: map.layer, maps: [] });
      group.maps.push(map);
    });
    names = distinct(groups.map(function (g) { return g.name; }));
    group = groups.find(function (g) { return before && g.key === before.key; }) || groups[0];
    document.querySelectorAll("[data-segment]").forEach(function (part) { part.hidden = +part.dataset.segment !== segment; });
  }
  turn_to(segment);
  var head = group.maps.length > 1 ? -1 : group.maps[0].head;
  var current = null;  // {rows, columns, weights, past, largest}

  var controls = element("div", "controls"), said = element("p", "said"), looks = element("div", "looks");
  said.setAttribute("aria-live", "polite");
  var canvas = element("canvas", "heat"), value = element("p", "said");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  [controls, said, looks, element("h4", "", "Map: rows down, columns across"), value, canvas].forEach(function (node) { place.appendChild(node); });

  function axis(index) {
    var of = data.axes[index];
    if (!of.kinds) {
      of.kinds = [];
      of.spans.forEach(function (span) { for (var i = 0; i < span.length; ++i) of.kinds.push(span.kind); });
      while (of.kinds.length < of.labels.length) of.kinds.push("tokens");
    }
    return of;
  }

  function load() {
    var maps = head < 0 ? group.maps : group.maps.filter(function (m) { return m.head === head; });
    maps.forEach(function (m) {
      if (typeof m.weights === "string") m.weights = halves(m.weights);
      if (typeof m.past === "string") m.past = halves(m.past);
    });
    function mean(pick) {
      var first = pick(maps[0]);
      if (!first) return null;
      var sum = new Float32Array(first.length);
      maps.forEach(function (m) { pick(m).forEach(function (v, i) { sum[i] += v / maps.length; }); });
      return sum;
    }
    var weights = mean(function (m) { return m.weights; }), largest = 0;
    weights.forEach(function (v) { largest = Math.max(largest, Math.abs(v)); });
    current = { rows: axis(maps[0].rows), columns: axis(maps[0].columns), weights: weights, past: mean(function (m) { return m.past; }), largest: largest || 1 };
  }

  function toolbar() {
    controls.textContent = "";
    if (segments.length > 1) controls.appendChild(list("segment", segments.map(function (n) { return { label: n + " of " + data.num_segments, value: n }; }), segment, function (n) {
      turn_to(n);
      fresh();
      controls.querySelector("select").focus();
    }));
    if (names.length > 1) controls.appendChild(list("map", names.map(function (n) { return { label: n, value: n }; }), group.name, function (name) {
      group = groups.find(function (g) { return g.name === name && g.layer === group.layer; }) || groups.find(function (g) { return g.name === name; });
      fresh();
    }));
    var layers = groups.filter(function (g) { return g.name === group.name; });
    controls.appendChild(list("layer", layers.map(function (g) { return { label: String(g.layer), value: g.layer }; }), group.layer, function (layer) {
      group = layers.find(function (g) { return g.layer === layer; });
      fresh();
    }));
    var heads = element("span", "choice");
    heads.setAttribute("role", "group");
    heads.setAttribute("aria-label", "head");
    heads.appendChild(element("span", "", "head"));
    (group.maps.length > 1 ? [-1] : []).concat(group.maps.map(function (m) { return m.head; })).forEach(function (h) {
      var button = element("button", "", h < 0 ? "mean" : String(h));
      button.type = "button";
      button.setAttribute("aria-pressed", String(h === head));
      button.addEventListener("click", function () {
        head = h;
        heads.querySelectorAll("button").forEach(function (b) { b.setAttribute("aria-pressed", String(b === button)); });
        load();
        heat();
        show(held);
      });
      heads.appendChild(button);
    });
    controls.appendChild(heads);
  }

  // One side: spans of one kind together, text as it stands, rows of memory as boxes.
  function side(title, of, which) {
    var box = element("section", "look"), items = element("div", "items"), index = 0;
    box.appendChild(element("h4", "", title));
    items.tabIndex = 0;
    items.setAttribute("role", "listbox");
    items.setAttribute("aria-label", title);
    of.nodes = [];
    of.side = items;
    for (var i = 0; i < of.kinds.length;) {
      var end = i, kind = of.kinds[i], words = kind === "tokens" && !/^tokens \d+$/.test(of.labels[i]);
      while (end < of.kinds.length && of.kinds[end] === kind && (kind !== "tokens" || words === !/^tokens \d+$/.test(of.labels[end]))) ++end;
      var part = element("div", "group");
      part.appendChild(element("b", "", words ? TITLES.tokens : kind === "tokens" ? "earlier tokens" : TITLES[kind] || kind));
      for (; i < end; ++i) {
        var label = of.labels[i], text = words ? label.replace(/\\x0a|\\n/g, "\u21b5").replace(/^ $/, "\u00a0") : label.replace(/^\D+ /, "");
        var item = element("span", "item" + (words ? "" : " row"), text);
        item.style.borderBottomColor = "var(--" + (KINDS[kind] || "other") + ")";
        item.id = which + "-" + i;
        item.setAttribute("role", "option");
        item.setAttribute("aria-label", label);
        item.dataset.at = i;
        of.nodes.push(item);
        part.appendChild(item);
        if (words && /(\\x0a|\\n)$/.test(label)) part.appendChild(element("br"));
      }
      items.appendChild(part);
    }
    function of_event(event) {
      var item = event.target.closest(".item");
      return item ? { side: which, at: +item.dataset.at } : null;
    }
    items.addEventListener("mouseover", function (event) { var at = of_event(event); if (at && !held) show(at); });
    items.addEventListener("mouseleave", function () { if (!held) show(null); });
    items.addEventListener("click", function (event) {
      var at = of_event(event);
      held = !at || (held && held.side === at.side && held.at === at.at) ? null : at;
      if (at) index = at.at;
      show(held || at);
    });
    items.addEventListener("focus", function () { if (!held) show({ side: which, at: index }); });
    items.addEventListener("keydown", function (event) {
      var step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") { held = null; show(null); }
      if (event.key === "Home") step = -of.nodes.length;
      if (event.key === "End") step = of.nodes.length;
      if (step === undefined) return;
      event.preventDefault();
      index = Math.max(0, Math.min(of.nodes.length - 1, index + step));
      held = { side: which, at: index };
      show(held);
      of.nodes[index].scrollIntoView({ block: "nearest" });
    });
    box.appendChild(items);
    looks.appendChild(box);
    return of;
  }

  var sides = {};
  function fresh() {
    held = null;
    if (head >= 0 && !group.maps.some(function (m) { return m.head === head; })) head = group.maps.length > 1 ? -1 : group.maps[0].head;
    load();
    toolbar();
    looks.textContent = "";
    var slots = current.columns.kinds[0] === "slots";
    sides.rows = side("From: queries (rows of the map)", Object.assign({}, current.rows), "rows");
    sides.columns = side(slots ? "To: slots (columns of the map)" : "To: keys (columns of the map)", Object.assign({}, current.columns), "columns");
    heat();
    show(null);
  }

  function weight(row, column) { return current.weights[row * current.columns.labels.length + column]; }

  // "read 0", or a token in quotation marks
  function title(of, i) { return of.kinds[i] === "tokens" && !/^tokens \d+$/.test(of.labels[i]) ? "\u201c" + named(of.labels[i]) + "\u201d" : of.labels[i]; }

  function show(at) {
    ["rows", "columns"].forEach(function (which) {
      sides[which].nodes.forEach(function (node) {
        node.style.backgroundColor = "";
        node.classList.remove("chosen");
        node.removeAttribute("aria-selected");
        node.removeAttribute("title");
      });
      sides[which].side.removeAttribute("aria-activedescendant");
    });
    if (!at) {
      said.textContent = "Point at a token.";
      return;
    }
    var from = sides[at.side], other = sides[at.side === "rows" ? "columns" : "rows"], list = [], most = 0;
    if (!from.nodes[at.at]) return;
    from.nodes[at.at].classList.add("chosen");
    from.nodes[at.at].setAttribute("aria-selected", "true");
    from.side.setAttribute("aria-activedescendant", from.nodes[at.at].id);
    other.nodes.forEach(function (node, i) {
      var w = at.side === "rows" ? weight(at.at, i) : weight(i, at.at);
      list.push({ label: title(other, i), w: w });
      most = Math.max(most, Math.abs(w));
    });
    other.nodes.forEach(function (node, i) {
      var w = list[i].w;
      node.style.backgroundColor = w > 0 ? "rgba(var(--heat), " + (0.85 * Math.sqrt(w / (most || 1))).toFixed(3) + ")" : w < 0 ? "rgba(200, 60, 40, " + (0.7 * Math.sqrt(-w / most)).toFixed(3) + ")" : "";
      node.title = list[i].label + " " + number(w);
    });
    said.textContent = "";
    said.appendChild(element("b", "", title(from, at.at)));
    var top = list.slice().sort(function (a, b) { return Math.abs(b.w) - Math.abs(a.w); }).filter(function (e) { return e.w !== 0; }).slice(0, 8);
    var slots = current.columns.kinds[0] === "slots";
    said.appendChild(document.createTextNode(
      (at.side === "rows" ? (slots ? " is held by: " : from.kinds[at.at] === "write" ? " is written from: " : " attends to: ") : slots ? " holds: " : " is attended by: ") +
      (top.length ? top.map(function (e) { return e.label + " " + number(e.w); }).join(", ") : "nothing") + (list.length > top.length && top.length === 8 ? ", \u2026" : "")));
    if (at.side === "rows" && current.past) said.appendChild(document.createTextNode("; earlier segments " + number(current.past[at.at])));
  }

  // The map in dots, one a weight (or the largest of a block), enlarged by the browser.
  var block = 1, cursor = null;
  function heat() {
    var rows = current.rows.labels.length, columns = current.columns.labels.length;
    block = Math.ceil(Math.max(rows, columns) / 2048);
    canvas.width = Math.ceil(columns / block);
    canvas.height = Math.ceil(rows / block);
    // As large as the window, and no dot larger than needed.
    canvas.style.width = "min(100%, " + Math.round(85 * columns / rows) + "vh, " + Math.max(320, columns * 28) + "px)";
    canvas.style.aspectRatio = canvas.width + " / " + canvas.height;
    var context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
    var heat = getComputedStyle(document.documentElement).getPropertyValue("--heat").split(",").map(Number);
    var best = new Float32Array(canvas.width * canvas.height);
    for (var r = 0; r < rows; ++r) {
      for (var c = 0; c < columns; ++c) {
        var at = Math.floor(r / block) * canvas.width + Math.floor(c / block), w = weight(r, c);
        if (Math.abs(w) > Math.abs(best[at])) best[at] = w;
      }
    }
    best.forEach(function (w, i) {
      var colour = w < 0 ? [200, 60, 40] : heat;
      for (var k = 0; k < 3; ++k) image.data[4 * i + k] = colour[k];
      image.data[4 * i + 3] = 255 * Math.sqrt(Math.abs(w) / current.largest);
    });
    context.putImageData(image, 0, 0);
    canvas.setAttribute("aria-label", "Map of " + rows + " rows and " + columns + " columns; the largest weight is " + number(current.largest) + ". Arrow keys read its values.");
    cursor = null;
    rest();
  }
  function rest() { value.textContent = "Largest weight " + number(current.largest) + "; the stronger the colour, the larger (square root scale). Point at a cell for its value."; }
  function read(row, column) {
    row = Math.max(0, Math.min(current.rows.labels.length - 1, row));
    column = Math.max(0, Math.min(current.columns.labels.length - 1, column));
    cursor = { row: row, column: column };
    value.textContent = "";
    value.appendChild(element("b", "", number(weight(row, column))));
    value.appendChild(document.createTextNode(" from " + title(current.rows, row) + " (row " + row + ") to " + title(current.columns, column) + " (column " + column + ")"));
    value.setAttribute("aria-live", "polite");
  }
  canvas.addEventListener("pointermove", function (event) {
    var box = canvas.getBoundingClientRect();
    read(Math.floor((event.clientY - box.top) / box.height * canvas.height) * block, Math.floor((event.clientX - box.left) / box.width * canvas.width) * block);
  });
  canvas.addEventListener("pointerleave", rest);
  canvas.addEventListener("keydown", function (event) {
    var step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    read((cursor ? cursor.row : 0) + step[0], (cursor ? cursor.column : 0) + step[1]);
  });

  // The map as a picture: the words of rows and columns at its edges, and the scale above it.
  function drawing() {
    var times = Math.max(1, Math.floor(1200 / Math.max(canvas.width, canvas.height))), unit = times / block, size = Math.max(11, Math.min(20, unit * 0.7));
    var every = Math.ceil(1.15 * size / unit), font = size.toFixed(1) + "px sans-serif", large = document.createElement("canvas"), context = large.getContext("2d");
    var style = getComputedStyle(document.body), heat = style.getPropertyValue("--heat");
    function words(of) {
      return of.labels.map(function (label, i) {
        var word = title(of, i);
        return i % every ? "" : word.length > 16 ? word.slice(0, 15) + "\u2026" : word;
      });
    }
    context.font = font;
    function room(list) { return 10 + list.reduce(function (most, word) { return Math.max(most, context.measureText(word).width); }, 0); }
    var rows = words(current.rows), columns = words(current.columns), left = room(rows), top = 2.5 * size, width = canvas.width * times, height = canvas.height * times;
    var about = (group.name + ", segment " + segment + ", layer " + group.layer + ", " + (head < 0 ? "mean of the heads" : "head " + head)), bar = 8 * size;
    var above = context.measureText(about + "  0  " + number(current.largest)).width + bar + size;
    large.width = Math.ceil(left + Math.max(width, above) + 10);
    large.height = Math.ceil(top + height + room(columns));
    context.fillStyle = style.backgroundColor;
    context.fillRect(0, 0, large.width, large.height);
    context.imageSmoothingEnabled = false;
    context.drawImage(canvas, left, top, width, height);
    context.strokeStyle = style.color;
    context.strokeRect(left - 0.5, top - 0.5, width + 1, height + 1);
    context.font = font;
    context.fillStyle = style.color;
    context.fillText(about + "  0", left, 1.4 * size);
    var x = Math.round(left + context.measureText(about + "  0 ").width);
    context.fillText(number(current.largest), x + bar + size / 2, 1.4 * size);
    for (var i = 0; i < bar; ++i) {
      context.fillStyle = "rgba(" + heat + ", " + Math.sqrt(i / bar) + ")";
      context.fillRect(x + i, 0.6 * size, 1, size);
    }
    context.fillStyle = style.color;
    context.textAlign = "right";
    rows.forEach(function (word, i) { if (word) context.fillText(word, left - 5, top + (i + 0.5) * unit + size / 3); });
    columns.forEach(function (word, i) {
      if (!word) return;
      context.save();
      context.translate(left + (i + 0.5) * unit + size / 3, top + height + 5);
      context.rotate(-Math.PI / 2);
      context.fillText(word, 0, 0);
      context.restore();
    });
    return large;
  }

  fresh();
  Page.tools(place, "attention map", {
    png: drawing,
    csv: function () {
      return [[""].concat(current.columns.labels)].concat(current.rows.labels.map(function (label, row) {
        return [label].concat(current.columns.labels.map(function (unused, column) { return String(weight(row, column)); }));
      }));
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", heat);
})();
