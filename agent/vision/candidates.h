// What a network says of places, and which of those that show the same thing are kept:
// edgedeploy/vision/decoders/detector.py in C++.
#pragma once

#include <cstdint>
#include <vector>

#include "vision/results.h"

namespace agent {

struct Candidate {
  float score;
  Box box;  // in pixels of the network's input
  int64_t class_id = 0;
  std::vector<Point> points{};  // in pixels of the network's input
  std::vector<float> extras{};  // further values, whose meaning the decoder knows
};
using Candidates = std::vector<Candidate>;

// Those at some places.
Candidates Chosen(const Candidates& found, const std::vector<size_t>& places);

// A box from its centre and size.
Box Around(float x, float y, float width, float height);

// Places by score, the best first; of equal scores the earlier one.
std::vector<size_t> ByScore(const Candidates& found);

struct Suppression {
  double iou_threshold;
  float tie = 0;             // if above zero, scores count in steps of it, and of equal ones the larger box comes first
  bool class_aware = false;  // whether a box drops those of its own class only
  size_t most = SIZE_MAX;    // how many are kept at most
};

// Greedy non-maximum suppression: each place that is kept, best score first, with those that it drops behind it.
std::vector<std::vector<size_t>> Clusters(const Candidates& found, const Suppression& how);

// The places that are kept.
std::vector<size_t> Suppressed(const Candidates& found, const Suppression& how);

// The same of boxes that are x, y, width, height, turned by their first extra value in radians, by the overlap of the
// normal distributions that they stand for. One that was dropped drops others too.
std::vector<size_t> SuppressedTurned(const Candidates& found, const Suppression& how);

}  // namespace agent
