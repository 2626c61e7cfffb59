// Heat maps on an image as large as the page, with the values under the pointer. #image-attention: see
// src/inspect/draw/attention_view.h.
(function () {
  "use strict";
  var element = Page.element;
  var data = JSON.parse(document.getElementById("image-attention").textContent), place = document.getElementById("image-view");
  if (data.maps.length === 0) return;

  function share(value) { return (100 * value).toFixed(value < 0.001 ? 4 : 2) + " %"; }

  var controls = element("div", "controls"), said = element("p", "said"), canvas = element("canvas", "heat");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  [controls, said, canvas].forEach(function (node) { place.appendChild(node); });
  var chosen = { from: data.maps[0].from, layer: data.maps[data.maps.length - 1].layer, head: -1 }, shown = null, cursor = null, cover = 0.6;
  var image = new Image();

  function distinct(key, filter) {
    return data.maps.filter(filter).map(function (m) { return m[key]; }).filter(function (v, i, all) { return all.indexOf(v) === i; });
  }
  function choice(label, key, values, name) {
    controls.appendChild(Page.list(label, values.map(function (value) { return { label: name(value), value: value }; }), chosen[key], function (value) {
      chosen[key] = value;
      pick();
    }));
  }
  function pick() {
    var here = function (keys) { return function (m) { return keys.every(function (k) { return m[k] === chosen[k]; }); }; };
    ["from", "layer", "head"].forEach(function (key, i, keys) {
      if (!data.maps.some(here(keys.slice(0, i + 1)))) chosen[key] = data.maps.find(here(keys.slice(0, i)))[key];
    });
    controls.textContent = "";
    choice("attention from", "from", distinct("from", function () { return true; }), String);
    choice("layer", "layer", distinct("layer", here(["from"])), String);
    choice("head", "head", distinct("head", here(["from", "layer"])), function (h) { return h < 0 ? "mean" : String(h); });
    var box = element("label"), slider = element("input");
    Object.assign(slider, { type: "range", min: 0, max: 1, step: 0.05, value: cover });
    slider.addEventListener("input", function () { cover = +slider.value; draw(); });
    box.appendChild(document.createTextNode("heat "));
    box.appendChild(slider);
    controls.appendChild(box);
    shown = data.maps.find(here(["from", "layer", "head"]));
    if (typeof shown.weights === "string") shown.weights = Page.halves(shown.weights);
    shown.largest = shown.weights.reduce(function (a, b) { return Math.max(a, b); }, 0);
    cursor = null;
    draw();
    rest();
  }
  // From dark blue to yellow, as in the picture of all maps.
  var STOPS = [[13, 8, 135], [156, 23, 158], [237, 121, 83], [240, 249, 33]];
  function colour(part) {
    var at = Math.max(0, Math.min(1, part)) * 3, low = Math.min(2, Math.floor(at));
    return STOPS[low].map(function (v, c) { return v + (at - low) * (STOPS[low + 1][c] - v); });
  }
  function draw() {
    canvas.width = image.width * Math.max(1, Math.ceil(900 / image.width));
    canvas.height = canvas.width * image.height / image.width;
    canvas.style.width = "min(100%, " + Math.round(85 * image.width / image.height) + "vh, 900px)";
    var context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.filter = "grayscale(1)";
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    context.filter = "none";
    var w = canvas.width / shown.width, h = canvas.height / shown.height;
    shown.weights.forEach(function (value, i) {
      var part = shown.largest > 0 ? Math.sqrt(Math.max(0, value) / shown.largest) : 0;
      context.fillStyle = "rgba(" + colour(part).map(Math.round).join(",") + "," + (cover * (0.7 + 0.3 * part)).toFixed(3) + ")";
      context.fillRect(i % shown.width * w, Math.floor(i / shown.width) * h, w + 0.5, h + 0.5);
    });
    if (cursor !== null) {
      context.strokeStyle = "#fff";
      context.lineWidth = 2;
      context.strokeRect(cursor % shown.width * w, Math.floor(cursor / shown.width) * h, w, h);
    }
    canvas.setAttribute("aria-label", "Attention from " + shown.from + " in layer " + shown.layer + ", " + shown.height + " x " + shown.width + " positions. Arrow keys read their values.");
  }
  function rest() { said.textContent = "The largest share of a position is " + share(shown.largest) + "; brighter is larger (square root scale). Point at a position for its share."; }
  function read(row, column) {
    row = Math.max(0, Math.min(shown.height - 1, row));
    column = Math.max(0, Math.min(shown.width - 1, column));
    var at = row * shown.width + column;
    if (at !== cursor) { cursor = at; draw(); }
    said.textContent = "";
    said.appendChild(element("b", "", share(shown.weights[at])));
    said.appendChild(document.createTextNode(" of the attention goes to row " + row + ", column " + column + "."));
    said.setAttribute("aria-live", "polite");
  }
  canvas.addEventListener("pointermove", function (event) {
    var box = canvas.getBoundingClientRect();
    read(Math.floor((event.clientY - box.top) / box.height * shown.height), Math.floor((event.clientX - box.left) / box.width * shown.width));
  });
  canvas.addEventListener("pointerleave", function () { cursor = null; draw(); rest(); });
  canvas.addEventListener("keydown", function (event) {
    var step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    read((cursor === null ? 0 : Math.floor(cursor / shown.width)) + step[0], (cursor === null ? 0 : cursor % shown.width) + step[1]);
  });
  // The map as a picture, with its scale below.
  function drawing() {
    var large = document.createElement("canvas"), context = large.getContext("2d"), style = getComputedStyle(document.body), size = 18, bar = 12 * size;
    large.width = canvas.width;
    large.height = canvas.height + 2 * size;
    context.fillStyle = style.backgroundColor;
    context.fillRect(0, 0, large.width, large.height);
    context.drawImage(canvas, 0, 0);
    context.fillStyle = style.color;
    context.font = size + "px sans-serif";
    context.fillText("0", 4, canvas.height + 1.4 * size);
    context.fillText(share(shown.largest), 1.8 * size + bar, canvas.height + 1.4 * size);
    for (var i = 0; i < bar; ++i) {
      context.fillStyle = "rgb(" + colour(Math.sqrt(i / bar)).map(Math.round).join(",") + ")";
      context.fillRect(Math.round(1.4 * size) + i, canvas.height + 0.6 * size, 1, size);
    }
    return large;
  }
  image.onload = function () {
    pick();
    Page.tools(place, "heat map", {
      png: drawing,
      csv: function () {
        var rows = [];
        for (var row = 0; row < shown.height; ++row) rows.push(Array.from(shown.weights.slice(row * shown.width, (row + 1) * shown.width)).map(String));
        return rows;
      }
    });
  };
  image.src = "data:image/png;base64," + data.picture;
})();
