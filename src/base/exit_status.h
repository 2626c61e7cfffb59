#pragma once

namespace mnemo::base {

/// Exit statuses.
inline constexpr int kDone = 0;
inline constexpr int kAnswerIsNo = 1;  ///< a check failed, such as verify out of tolerance; or a result is not finite
inline constexpr int kWrongInput = 2;  ///< base::InputError
inline constexpr int kOwnFault = 3;    ///< everything else
inline constexpr int kInterrupted = 130;
inline constexpr int kTerminated = 143;

/// The exit status of a program that stopped for SIGINT or SIGTERM: kInterrupted or kTerminated.
constexpr int stopped_by(int signal) { return 128 + signal; }

}  // namespace mnemo::base
