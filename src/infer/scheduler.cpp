#include "infer/scheduler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "core/model.h"

namespace mnemo::infer {
namespace {

/// Log probabilities of a token and of the `most` most likely ones, by log softmax(logits).
std::vector<std::pair<int64_t, double>> likely_of(std::span<const float> logits, int64_t token, int64_t most) {
  const double best = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - best);
  const double norm = best + std::log(sum);
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto end = order.begin() + std::min<int64_t>(most, std::ssize(order));
  std::ranges::partial_sort(order, end, [&](int64_t a, int64_t b) {
    return std::pair(-logits[static_cast<size_t>(a)], a) < std::pair(-logits[static_cast<size_t>(b)], b);
  });
  std::vector<std::pair<int64_t, double>> likely = {{token, logits[static_cast<size_t>(token)] - norm}};
  for (auto id = order.begin(); id != end; ++id) likely.emplace_back(*id, logits[static_cast<size_t>(*id)] - norm);
  return likely;
}

}  // namespace

Scheduler::Scheduler(std::shared_ptr<const Engine> engine, const Options& options)
    : engine_(std::move(engine)), options_(options) {
  base::ensure(engine_ != nullptr, "a scheduler needs an engine");
  base::require(options.rows >= 1 && options.rows <= Engine::kRows, "scheduler: rows: expected 1 to {}, found {}",
                Engine::kRows, options.rows);
  base::require(options.max_running >= 1 && options.max_running <= options.rows,
                "scheduler: max_running: expected 1 to the {} rows of a pass, found {}", options.rows,
                options.max_running);
  base::require(options.shared_rows >= 1, "scheduler: shared_rows: expected 1 or more, found {}", options.shared_rows);
  base::require(options.max_waiting >= 1, "scheduler: max_waiting: expected 1 or more, found {}", options.max_waiting);
  base::require(options.turn >= 0, "scheduler: turn: expected 0 or more, found {}", options.turn);
}

Scheduler::Id Scheduler::submit(const TextSession& text, const TextSession::Prompt& prompt,
                                const GenerateOptions& options, int64_t logprobs) {
  const Session& session = text.session();
  base::require(session.engine_ == engine_, "scheduler: expected a text of its own engine");
  base::require(!full(), "scheduler: the queue is full ({} requests wait); try again later", waiting());
  require_tokens(session.model(), prompt.tokens);
  base::require(session.position() > 0 || !prompt.tokens.empty(),
                "prompt: expected at least one token to continue from, found none");
  Member member{next_id_, text, prompt.tokens};
  member.logprobs = logprobs;
  member.wants = static_cast<int64_t>(prompt.tokens.size()) + options.max_tokens;
  member.text.prepare(options, prompt.tokens.size());
  for (size_t i = static_cast<size_t>(prompt.leading); i < prompt.tokens.size(); ++i)
    member.text.stream_.read(prompt.tokens[i]);
  Session& own = member.text.session();
  if (own.progress_.pending >= 0) member.tokens.insert(member.tokens.begin(), own.progress_.pending);
  own.decoding_->logits.resize(static_cast<size_t>(core::token_input(own.model().input()).vocab_size));
  if (!own.progress_.reset_segments)
    engine_->require_places(own.decoding_->sequence, static_cast<int64_t>(member.tokens.size()));
  waiting_.push_back(std::move(member));
  return next_id_++;
}

std::optional<Scheduler::Member> Scheduler::take(Id id) {
  const auto taken = [id](auto& members) -> std::optional<Member> {
    const auto found = std::ranges::find(members, id, &Member::id);
    if (found == members.end()) return std::nullopt;
    std::optional<Member> member = std::move(*found);
    members.erase(found);
    return member;
  };
  std::optional<Member> member = taken(running_);
  if (!member) member = taken(waiting_);
  if (!member) member = taken(rested_);
  return member ? std::move(member) : taken(held_);
}

std::optional<TextSession> Scheduler::cancel(Id id) {
  std::optional<Member> member = take(id);
  if (!member) return std::nullopt;
  unpark(*member);
  return std::move(member->text);
}

void Scheduler::hold(Id id, bool holds) {
  std::optional<Member> member = take(id);
  if (!member) return;
  if (holds) {
    member->early = false;
    member->of_turn = 0;
    park(*member);
    held_.push_back(std::move(*member));
  } else {
    waiting_.insert(std::ranges::upper_bound(waiting_, id, {}, &Member::id), std::move(*member));
  }
}

void Scheduler::park(Member& member) const {
  Session& session = member.text.session();
  if (session.progress_.used == 0 && !std::exchange(member.parked, true))
    engine_->drop_keys(session.decoding_->sequence);
}

void Scheduler::unpark(Member& member) const {
  if (std::exchange(member.parked, false)) engine_->make_keys(member.text.session().decoding_->sequence);
}

bool Scheduler::between_segments(Id id) const {
  const Member* member = find(id);
  return member != nullptr && member->text.session().progress_.used == 0;
}

bool Scheduler::idle() const { return running_.empty() && waiting() == 0; }

const Scheduler::Member* Scheduler::find(Id id) const {
  const auto in = [id](const auto& members) -> const Member* {
    const auto found = std::ranges::find(members, id, &Member::id);
    return found == members.end() ? nullptr : &*found;
  };
  if (const Member* found = in(running_)) return found;
  if (const Member* found = in(waiting_)) return found;
  const Member* found = in(rested_);
  return found != nullptr ? found : in(held_);
}

int64_t Scheduler::state_bytes() const {
  int64_t bytes = 0;
  const auto add = [&](const auto& members) {
    for (const Member& member : members) bytes += member.text.session().state_bytes();
  };
  add(running_), add(waiting_), add(rested_), add(held_);
  return bytes;
}

std::optional<int64_t> Scheduler::position(Id id) const {
  const Member* member = find(id);
  return member == nullptr ? std::nullopt : std::optional(member->text.session().position());
}

std::vector<Scheduler::Event> Scheduler::tick() {
  std::vector<Event> events;
  end_turns();
  admit();
  admit_early();
  share_rows();
  pass(events);
  std::erase_if(running_, [](const Member& member) { return member.ended; });
  return events;
}

/// Takes places for those that wait from those that have had theirs for longest. One that is near the end of its
/// segment keeps its place up to there, where it can wait with its memory alone.
void Scheduler::end_turns() {
  if (options_.turn == 0) return;
  const auto passes = [this](const Member& member) {
    const Session& session = member.text.session();
    const int64_t used = session.progress_.used, size = core::token_input(session.model().input()).segment_size;
    return used == 0 || size - used > 3 * options_.turn ? member.of_turn : 0;
  };
  for (int64_t wanted = running() + waiting() - options_.max_running; wanted > 0 && running() > 0; --wanted) {
    const auto longest = std::ranges::max_element(running_, {}, passes);
    if (passes(*longest) < options_.turn) return;
    longest->early = false;
    longest->of_turn = 0;
    park(*longest);
    rested_.push_back(std::move(*longest));
    running_.erase(longest);
  }
}

void Scheduler::admit() {
  while (waiting() > 0 && running() < options_.max_running) {
    std::deque<Member>& queue = waiting_.empty() || (next_rested_ && !rested_.empty()) ? rested_ : waiting_;
    place(queue, queue.begin());
  }
}

/// Gives new requests places of those that have had theirs for longest, whose turn has not passed: they come back
/// before others that rest, since they are inside their segments.
void Scheduler::admit_early() {
  if (options_.turn == 0 || waiting_.empty()) return;
  const auto wanted = [](const Member& member) { return std::pair(!member.fresh, member.wants); };
  const auto passes = [](const Member& member) { return member.early ? 0 : member.passes; };
  for (int64_t places =
           std::max<int64_t>(1, options_.max_running / 4) - std::ranges::count(running_, true, &Member::early);
       places > 0; --places) {
    const auto next = std::ranges::min_element(waiting_, {}, wanted);
    const auto longest = std::ranges::max_element(running_, {}, passes);
    if (next == waiting_.end() || !next->fresh || passes(*longest) == 0) return;
    rested_.push_front(std::move(*longest));
    running_.erase(longest);
    next->early = true;
    place(waiting_, next);
  }
}

void Scheduler::place(std::deque<Member>& queue, std::deque<Member>::iterator next) {
  next_rested_ = &queue == &waiting_;
  unpark(*next);
  next->passes = 0;
  next->fresh = false;
  running_.insert(std::ranges::upper_bound(running_, next->id, {}, &Member::id), std::move(*next));
  queue.erase(next);
}

/// A row for each that has tokens to run, then the rest to the oldest, up to the ends of their segments.
void Scheduler::share_rows() {
  int64_t active = 0, writing = 0;
  for (Member& member : running_) {
    const size_t tokens = member.tokens.size() - member.done;
    member.rows = tokens > 0 ? 1 : 0;
    active += tokens > 0 ? 1 : 0;
    writing += tokens == 1 ? 1 : 0;
  }
  const int64_t most = writing == 0 ? options_.rows
                                    : std::min(options_.rows, std::max(options_.shared_rows, 2 * writing));
  auto left = static_cast<size_t>(std::max<int64_t>(0, most - active));
  for (Member& member : running_) {
    if (member.rows == 0) continue;
    const Session& session = member.text.session();
    const auto room = static_cast<size_t>(core::token_input(session.model().input()).segment_size -
                                          session.progress_.used);
    const size_t more = std::min({left, member.tokens.size() - member.done - 1, room - 1});
    member.rows += more;
    left -= more;
  }
}

void Scheduler::pass(std::vector<Event>& events) {
  std::vector<Engine::Step> steps;
  for (Member& member : running_) {
    if (member.rows == 0) continue;
    Session& session = member.text.session();
    EngineSequence& sequence = session.decoding_->sequence;
    if (session.progress_.reset_segments && session.progress_.used == 0) sequence = engine_->begin();
    try {
      engine_->require_places(sequence, static_cast<int64_t>(member.rows));
    } catch (const base::InputError& error) {
      end(member, events.emplace_back(Event{.id = member.id, .error = error.what()}));
      continue;
    }
    const bool last = member.done + member.rows == member.tokens.size();
    steps.push_back({&sequence, std::span<const int64_t>(member.tokens).subspan(member.done, member.rows),
                     last ? session.decoding_->logits.data() : nullptr});
  }
  if (!steps.empty()) engine_->pass(steps);
  ended_segment_ = false;
  for (Member& member : running_) {
    if (member.ended) continue;
    member.text.session().ran(std::span<const int64_t>(member.tokens).subspan(member.done, member.rows));
    ended_segment_ |= member.rows > 0 && member.text.session().progress_.used == 0;
    member.done += member.rows;
    ++member.passes, ++member.of_turn;
    if (member.done == member.tokens.size()) write(member, events);
  }
}

/// Samples a request's next token.
void Scheduler::write(Member& member, std::vector<Event>& events) {
  Event& event = events.emplace_back(Event{.id = member.id});
  Session& session = member.text.session();
  TextStream& stream = member.text.stream_;
  if (!stream.ended()) {
    try {
      event.token = session.pick();
      if (member.logprobs >= 0) event.likely = likely_of(session.decoding_->logits, event.token, member.logprobs);
      session.append(event.token);
      event.held = base::count_characters(stream.held());
      event.text = stream.put(event.token);
      member.tokens.assign(1, event.token);
      member.done = 0;
    } catch (const base::InputError& error) {
      event.error = error.what();
    }
  }
  event.reason = stream.finish_reason();
  if (!event.error.empty() || stream.ended()) end(member, event);
}

void Scheduler::end(Member& member, Event& event) {
  event.session = std::move(member.text);
  member.ended = true;
}

}  // namespace mnemo::infer
