// One image of a demo through its network, with the times of all parts.
#pragma once

#include "demo/outcome.h"
#include "demo/source.h"
#include "model.h"
#include "vision/detector.h"

namespace agent {

// The first inference gives the results, and `repeat` more give the times; if there are no more, it stands for them.
// Failures as of Detector and Model.
Outcome Look(const Shot& shot, int number, const Detector& detector, Model* model, int repeat);

}  // namespace agent
