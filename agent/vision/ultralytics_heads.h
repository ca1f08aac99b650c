// What networks of Ultralytics give for each place: edgedeploy/vision/decoders/ultralytics_heads.py in C++.
#pragma once

#include <string>
#include <utility>

#include "vision/decoder.h"

namespace agent {

// How the output is laid out: places are columns of x, y, width, height, scores and what the task adds; or rows, with
// how sure the network is that there is something before the scores; or rows that the network has chosen itself, of x1,
// y1, x2, y2, score, class and what the task adds.
enum class Form { kChannels, kObjectness, kChosen };

struct HeadParameters {
  float threshold;  // which scores must exceed
  Suppression suppression;
  std::string output;
  Form form;
  int64_t extras;  // values that the task adds for each place
};

std::unique_ptr<Decoder> MakeBoxes(const HeadParameters& parameters);
// Boxes with masks, which are sums of the prototypes that another output has.
std::unique_ptr<Decoder> MakeMasks(const HeadParameters& parameters, const std::string& prototypes);
// Boxes with points: how many, and the values of each.
std::unique_ptr<Decoder> MakePoints(const HeadParameters& parameters, std::pair<int64_t, int64_t> shape);
// Boxes that are turned by an angle.
std::unique_ptr<Decoder> MakeTurnedBoxes(const HeadParameters& parameters);

}  // namespace agent
