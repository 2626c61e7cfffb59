#include "infer/batcher.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <array>

#include "base/error.h"

namespace mnemo::infer {
namespace {

/// Throws unless both states have the same per-model fields.
void require_same_shared(const core::State& mine, const core::State& members) {
  const auto others = members.fields();
  for (const auto& [field, tensor] : mine.fields()) {
    if (field.per_sequence()) continue;
    for (const auto& [other_field, other] : others) {
      base::require(other_field.path != field.path || tensor.is_same(other) || at::equal(tensor, other),
                    "batcher: the session began with another '{}' of the model than those already here (the model was "
                    "trained in between); run it in a batcher of its own",
                    field.path);
    }
  }
}

}  // namespace

Batcher::Batcher(std::shared_ptr<const core::Model> model) : model_(std::move(model)) {
  base::ensure(model_ != nullptr, "a batcher needs a model");
}

Batcher::~Batcher() = default;

Batcher::Id Batcher::add(Session session) {
  base::require(session.model_ == model_, "batcher: the session belongs to another model");
  base::require(session.engine_ == nullptr, "batcher: expected a session without an engine; a scheduler runs it");
  base::require(session.position() > 0, "batcher: expected a session that has been fed at least one token");
  base::require(!session.progress_.reset_segments,
                "batcher: sessions that reset memory at segments are not supported; run this one alone");
  const Id id = next_id_++;
  const c10::InferenceMode inference;
  if (!members_.empty()) require_same_shared(session.state(), members_.begin()->second.block->state());
  auto block = std::make_shared<PaddedBatch>(std::move(session.progress_.state));
  session.progress_.state = {};
  members_.emplace(id, Member{std::move(session), std::move(block), 0});
  return id;
}

Batcher::Member& Batcher::find(Id id) {
  const auto found = members_.find(id);
  base::require(found != members_.end(), "batcher: no session {} here", id);
  return found->second;
}

Session Batcher::remove(Id id) {
  const c10::InferenceMode inference;
  Member& member = find(id);
  Session session = std::move(member.session);
  session.progress_.state = member.block->take(member.row);
  if (session.progress_.logits.defined()) session.progress_.logits = session.progress_.logits.clone();
  members_.erase(id);
  return session;
}

std::vector<Batcher::Token> Batcher::step() {
  const c10::InferenceMode inference;
  run_pending();
  std::vector<Token> tokens;
  tokens.reserve(members_.size());
  for (auto& [id, member] : members_) {
    try {
      tokens.push_back({id, member.session.pick()});
    } catch (const base::InputError& error) {
      base::input_error("batcher: session {}: {}", id, error.what());
    }
  }
  size_t i = 0;
  for (auto& [id, member] : members_) {
    member.session.append(tokens[i++].token);
  }
  return tokens;
}

void Batcher::run_pending() {
  std::array<std::vector<Member*>, 4> groups;
  for (auto& [id, member] : members_) {
    const Progress& progress = member.session.progress_;
    if (progress.pending < 0) continue;
    const core::Part part = part_of(*model_, progress.used, 1);
    groups[(part.starts ? 1 : 0) + (part.ends ? 2 : 0)].push_back(&member);
  }
  for (const auto& group : groups) {
    if (!group.empty()) run_group(group);
  }
}

void Batcher::run_group(const std::vector<Member*>& group) {
  const auto batch = static_cast<int64_t>(group.size());
  // The usual case: the same sequences as in the previous step, in the same order, so nothing has to be copied.
  std::shared_ptr<PaddedBatch> block = group.front()->block;
  bool together = block->size() == batch;
  for (int64_t row = 0; together && row < batch; ++row) together = group[row]->block == block && group[row]->row == row;
  if (!together) {
    std::vector<PaddedBatch::Row> seats;
    for (const Member* member : group) seats.push_back({member->block, member->row});
    block = std::make_shared<PaddedBatch>(seats);
  }

  core::Segment segment;
  segment.tokens = at::empty({batch, 1}, at::kLong);
  int64_t* tokens = segment.tokens.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < batch; ++row) tokens[row] = group[row]->session.progress_.pending;
  if (const at::Device device = device_of(*model_); !device.is_cpu()) segment.tokens = segment.tokens.to(device);
  segment.part = part_of(*model_, group.front()->session.progress_.used, 1);
  core::StepResult step = model_->forward(segment, block->state());
  const at::Tensor logits = readable_logits(model_->logits(step.hidden.select(1, 0)));

  block->advance(std::move(step.state), 1, segment.part);
  for (int64_t row = 0; row < batch; ++row) {
    Member& member = *group[row];
    Progress& progress = member.session.progress_;
    progress.logits = logits.select(0, row);
    progress.used = segment.part.ends ? 0 : progress.used + 1;
    progress.pending = -1;
    member.block = block;
    member.row = row;
  }
}

}  // namespace mnemo::infer
