#pragma once

namespace mnemo::base {

/// Exit statuses. A run stopped by SIGINT or SIGTERM exits with 130 or 143.
inline constexpr int kDone = 0;
inline constexpr int kAnswerIsNo = 1;  ///< a check failed, such as verify out of tolerance; or a result is not finite
inline constexpr int kWrongInput = 2;  ///< base::InputError
inline constexpr int kOwnFault = 3;    ///< everything else
inline constexpr int kInterrupted = 130;
inline constexpr int kTerminated = 143;

}  // namespace mnemo::base
