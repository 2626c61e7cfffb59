# Shared by the scripts of this folder; they source it.

set -euo pipefail
root=$(CDPATH= cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

say() { printf '== %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# How many compilations at once: as many as cores, but 1.5 GB of free memory for each.
jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ {print int($2 / 1500000)}' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  echo $((cores < memory ? cores : memory))
}

# configure PRESET [CMAKE_ARGUMENT...]: makes build/PRESET. MNEMO_TORCH_DIR in the environment wins over .deps/torch.
configure() {
  local preset=$1
  shift
  cmake --preset "$preset" -DMNEMO_TORCH_DIR="${MNEMO_TORCH_DIR:-$root/.deps/torch/torch}" "$@" >"$root/build/configure-$preset.log" 2>&1 || {
    cat "$root/build/configure-$preset.log" >&2
    fail "cmake --preset $preset failed; its output stands above"
  }
}

# build PRESET [TARGET...]
build() {
  local preset=$1 started=$SECONDS
  shift
  say "Building ($preset, $(jobs) at once)"
  cmake --build "build/$preset" --parallel "$(jobs)" ${@:+--target "$@"}
  say "Built in $((SECONDS - started)) s"
}

mkdir -p "$root/build"

# tiny_model PROGRAM FOLDER [ARGUMENT...]: trains a small model of texts for seconds, FOLDER/run.
tiny_model() {
  cat >"$2/tiny.toml" <<'RECIPE'
name = "tiny"
[model]
segment_size = 8
memory = [{ type = "segment_cache", mem_len = 8 }]
[model.backbone]
num_layers = 1
dim = 16
num_heads = 2
ffn_dim = 16
[train]
steps = 6
batch_size = 4
RECIPE
  for i in $(seq 200); do echo "line $i of other texts"; done >"$2/text.txt"
  "$1" train "$2/tiny.toml" --data "$2/text.txt" --out "$2/run" --quiet "${@:3}"
}
