// The state of a training, and reloading while it goes on. #run: {state, written, beat, resume}; times in seconds.
(function () {
  "use strict";
  var run = JSON.parse(document.getElementById("run").textContent);
  if (run.state !== "training") return;
  var state = document.getElementById("state"), note = document.getElementById("state-note");
  var following = Page.kept("following") !== false, dragging = false;

  function ago(seconds) {
    return seconds < 90 ? Math.round(seconds) + " s" : seconds < 5400 ? Math.round(seconds / 60) + " minutes" :
      seconds < 172800 ? Math.round(seconds / 3600) + " hours" : Math.round(seconds / 86400) + " days";
  }

  // The training writes the page at every beat, whatever it is doing. Where it has not for a while, it has ended without
  // a last word (it was killed, or the machine went down), or the page has been copied from elsewhere.
  function tell() {
    var age = Date.now() / 1000 - run.written, silent = age > Math.max(60, 4 * run.beat);
    if (silent) {
      state.className = "state silent";
      state.textContent = "no sign of life";
      note.textContent = "Last written " + ago(age) + " ago: the process died without reporting, or this page is a copy. To resume from the last checkpoint: " + run.resume;
    } else {
      state.className = "state training";
      state.textContent = "training";
      note.textContent = "As of " + ago(Math.max(0, age)) + " ago.";
    }
    return silent;
  }

  var box = document.createElement("label"), tick = document.createElement("input");
  tick.type = "checkbox";
  tick.checked = following;
  tick.addEventListener("change", function () {
    following = tick.checked;
    Page.keep("following", following);
  });
  box.appendChild(tick);
  box.appendChild(document.createTextNode(" follow"));
  box.title = "reload this page while the training goes on";
  box.className = "noprint";
  state.parentElement.appendChild(box);

  document.addEventListener("pointerdown", function () { dragging = true; });
  document.addEventListener("pointerup", function () { dragging = false; });

  var opened = Date.now();
  tell();
  setInterval(function () {
    var silent = tell(), selection = String(getSelection());
    var due = Date.now() - opened >= (silent ? 60 : run.beat) * 1000;
    // Never under the reader's hands: while something is dragged, selected or pointed at, or out of sight.
    if (!due || !following || dragging || selection || document.hidden) return;
    if (document.querySelector(".chart:hover, .item:hover")) return;
    location.reload();
  }, 1000);
})();
