#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "infer/text_session.h"

namespace mnemo::infer {

/// Writes many texts with one decoding engine. Requests join and leave at any time; each writes, bit for bit, what its
/// session would write alone. tick() makes one pass of the engine: a row for each request that writes and for each that
/// still reads its prompt, then the rows that are left to the prompts, oldest first. So every running request advances
/// in every tick, and a long prompt does not stop those who write: beside them a pass is short (Options::shared_rows).
///
/// One thread owns a scheduler.
class Scheduler {
 public:
  using Id = int64_t;
  struct Options {
    int64_t rows = Engine::kRows;  ///< of a pass at most
    /// Of a pass in which prompts are read while others write, at most; 2 for each that writes if that is more. More
    /// rows read a prompt sooner and make those who write wait longer.
    int64_t shared_rows = 24;
    int64_t max_running = Engine::kRows;  ///< requests that share passes, at most `rows`
    int64_t max_waiting = 1024;           ///< requests in the queue behind them
    /// Passes after which a request gives its place to one that waits, and waits for another; 0: it keeps its place to
    /// its end. If its segment ends within three times as many more, it goes on to there, and waits as hold() says. New
    /// requests and those whose turn has passed get places alternately, so nobody waits for a long text; besides, new
    /// ones get a quarter of the places at once, those that want the fewest tokens first.
    int64_t turn = 0;
  };
  /// What has happened to a request in a tick.
  struct Event {
    Id id;
    int64_t token = -1;     ///< that was sampled; -1: none
    std::string text = {};  ///< that is certain by now: whole characters, often none
    int64_t held = 0;       ///< characters in front of the token that are in no event's text yet
    FinishReason reason = FinishReason::none;
    /// With `logprobs`: the token and its log probability in nats, then the most likely ones. They are the model's,
    /// whatever the sampling.
    std::vector<std::pair<int64_t, double>> likely = {};
    std::string error = {};                   ///< why it could not go on; empty: no error
    std::optional<TextSession> session = {};  ///< of a request that has ended, with a reason or an error
  };

  /// Throws InputError for options out of range.
  explicit Scheduler(std::shared_ptr<const Engine> engine) : Scheduler(std::move(engine), Options()) {}
  Scheduler(std::shared_ptr<const Engine> engine, const Options& options);

  /// Takes over an open text, which reads `prompt` and then writes a text as TextSession::begin(options) says.
  /// `logprobs`: how many of the most likely tokens events list; -1: not even the one that was sampled. Throws
  /// InputError, and takes nothing, if the queue is full, the text has another engine, the prompt is not of the
  /// vocabulary, or nothing has been read or is to be.
  Id submit(const TextSession& text, const TextSession::Prompt& prompt, const GenerateOptions& options,
            int64_t logprobs = -1);
  /// Keeps a request where it is, and gives its place to others, or lets it go on: before those that wait. Between two
  /// segments it keeps its state alone, without keys and values that can be computed from it.
  void hold(Id id, bool holds);
  /// Whether a request has read and written whole segments, but for the last token: a good moment to hold it.
  bool between_segments(Id id) const;
  /// Ends a request and returns its session after what it has read and written; nothing for one that has ended.
  std::optional<TextSession> cancel(Id id);
  /// Makes one pass and returns what came of it, oldest request first; without requests there is none.
  std::vector<Event> tick();

  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size() + rested_.size()); }
  int64_t held() const { return static_cast<int64_t>(held_.size()); }
  /// Whether a request's segment ended in the last pass.
  bool ended_segment() const { return ended_segment_; }
  /// Whether tick() would do nothing.
  bool idle() const;
  /// Whether submit() would refuse a request.
  bool full() const { return waiting() >= options_.max_waiting; }
  /// Tokens that a request has read and written so far; nothing for one that has ended.
  std::optional<int64_t> position(Id id) const;
  /// Bytes of the states of all requests, as Session::state_bytes().
  int64_t state_bytes() const;

 private:
  struct Member {
    Id id;
    TextSession text;
    std::vector<int64_t> tokens;  // to run next: the prompt, then one sampled token after the other
    size_t done = 0;              // of `tokens`
    size_t rows = 0;              // in the next pass
    int64_t passes = 0;           // since it has its place
    int64_t of_turn = 0;          // passes, also before a new request took its place for a while
    int64_t logprobs = -1;
    int64_t wants = 0;    // tokens, to be read and written
    bool fresh = true;    // never had a place
    bool early = false;   // got its place before its turn
    bool parked = false;  // held, without the keys of its memory
    bool ended = false;   // its session is in an event
  };
  /// Takes a request out of wherever it is; nothing for one that has ended.
  std::optional<Member> take(Id id);
  const Member* find(Id id) const;
  void park(Member& member) const;
  void unpark(Member& member) const;
  void end_turns();
  void admit();
  void admit_early();
  void place(std::deque<Member>& queue, std::deque<Member>::iterator next);
  void share_rows();
  void pass(std::vector<Event>& events);
  void write(Member& member, std::vector<Event>& events);
  void end(Member& member, Event& event);

  std::shared_ptr<const Engine> engine_;
  Options options_;
  std::vector<Member> running_;  // oldest first
  std::deque<Member> waiting_;
  std::deque<Member> rested_;  // their turn has passed
  bool next_rested_ = false;   // they get the next place
  bool ended_segment_ = false;
  std::vector<Member> held_;
  Id next_id_ = 0;
};

}  // namespace mnemo::infer
