#include "demo/look.h"

namespace agent {

Outcome Look(const Shot& shot, int number, const Detector& detector, Model* model, int repeat) {
  Outcome outcome{number, shot.file, {}, {}, {}, {}};
  outcome.parts.capture_ms = shot.capture_ms;
  const double began_ms = NowMs();
  outcome.frame = detector.Prepare(FrameOf(shot.picture.pixels), *model);
  const double prepared_ms = NowMs();
  model->Run();
  const double inferred_ms = NowMs();
  outcome.detections = detector.Decode(*model, outcome.frame);
  const double decoded_ms = NowMs();
  outcome.parts.preprocess_ms = prepared_ms - began_ms;
  outcome.parts.inference_ms = inferred_ms - prepared_ms;
  outcome.parts.postprocess_ms = decoded_ms - inferred_ms;
  outcome.runs_ms = repeat > 0 ? Measure(model, repeat, 1, 0) : std::vector<double>{outcome.parts.inference_ms};
  return outcome;
}

}  // namespace agent
