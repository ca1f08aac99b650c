#include "statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace agent {

void AddStatistics(const std::vector<double>& runs_ms, Json* object) {
  object->Set("runs_ms", Json(Json::Array(runs_ms.begin(), runs_ms.end())));
  if (runs_ms.empty()) return;
  std::vector<double> sorted = runs_ms;
  std::sort(sorted.begin(), sorted.end());
  const size_t count = sorted.size();
  const double mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(count);
  double squares = 0;
  for (const double run : sorted) squares += (run - mean) * (run - mean);
  object->Set("min_ms", sorted.front());
  object->Set("median_ms", (sorted[(count - 1) / 2] + sorted[count / 2]) / 2);
  object->Set("mean_ms", mean);
  object->Set("max_ms", sorted.back());
  object->Set("std_ms", std::sqrt(squares / static_cast<double>(count)));
}

}  // namespace agent
