// Networks of Ultralytics (YOLOv5, v8, 11, 26 and their kin), read as their own files say
// (edgedeploy/vision/decoders/ultralytics.py).
#include "vision/decoder.h"
#include "vision/ultralytics_heads.h"
#include "vision/ultralytics_metadata.h"

namespace agent {
namespace {

// The task of a network whose file does not say it.
std::string TaskOf(const std::vector<TensorSpec>& outputs) {
  bool has_table = false;
  bool has_prototypes = false;
  for (const TensorSpec& spec : outputs) {
    has_table = has_table || spec.shape.size() == 3;
    has_prototypes = has_prototypes || spec.shape.size() == 4;
  }
  return !has_table ? "classify" : has_prototypes ? "segment" : "detect";
}

// How an output of rank 3 is laid out: told by its shape, and by how many classes the file names.
Form FormOf(const TensorSpec& table, int64_t extras, const UltralyticsDescription& description) {
  const int64_t rows = table.shape[1];
  const int64_t columns = table.shape[2];
  const auto classes = static_cast<int64_t>(description.names.size());
  // YOLOv5's own exporter writes no task; its networks of one class have as many values as those that choose.
  if (columns == 6 + extras && !(classes == 1 && !description.task)) return Form::kChosen;
  if (classes == 0 && rows < columns) return Form::kChannels;
  if (classes == 0 || columns == 5 + classes + extras) return Form::kObjectness;
  if (rows == 4 + classes + extras) return Form::kChannels;
  throw NotOfThisKind("its output '" + table.name + "' is " + Shown(table.shape) + ", which does not suit " +
                      std::to_string(classes) + " classes and " + std::to_string(extras) + " values beside them");
}

const TensorSpec* FirstOfRank(const std::vector<TensorSpec>& outputs, size_t rank) {
  for (const TensorSpec& spec : outputs) {
    if (spec.shape.size() == rank) return &spec;
  }
  return nullptr;
}

std::unique_ptr<Decoder> MakeHead(const std::string& task, HeadParameters parameters, const Described& network,
                                  const UltralyticsDescription& description) {
  const TensorSpec* table = FirstOfRank(network.outputs, 3);
  const TensorSpec* prototypes = FirstOfRank(network.outputs, 4);
  if (!table || (task == "segment" && !prototypes)) {
    std::string shapes;
    for (const TensorSpec& spec : network.outputs) shapes += ", " + spec.name + " " + Shown(spec.shape);
    throw NotOfThisKind("its outputs are not those of the task " + task + shapes);
  }
  parameters.output = table->name;
  parameters.extras = task == "segment" ? prototypes->shape[1]
                      : task == "pose"  ? description.points.first * description.points.second
                      : task == "obb"   ? 1
                                        : 0;
  parameters.form = FormOf(*table, parameters.extras, description);
  if (task == "segment") return MakeMasks(parameters, prototypes->name);
  if (task == "pose") return MakePoints(parameters, description.points);
  if (task == "obb") return MakeTurnedBoxes(parameters);
  return MakeBoxes(parameters);
}

}  // namespace

Fitted MakeUltralytics(Parameters& parameters, const Described& network) {
  std::string task = parameters.Text("task", "");
  HeadParameters head{};
  head.threshold = static_cast<float>(parameters.Fraction("threshold", 0.25));
  head.suppression.iou_threshold = parameters.Fraction("iou_threshold", 0.7);
  head.suppression.class_aware = parameters.Choice("suppression", {"agnostic", "class_aware"}, 1) == 1;
  head.suppression.most = static_cast<size_t>(parameters.Count("most", 300));
  const int64_t top = parameters.Count("top", 5);
  parameters.Finish();
  const UltralyticsDescription description = DescribeUltralytics(network.metadata);
  if (task.empty()) task = description.task ? *description.task : TaskOf(network.outputs);
  if (task == "classify") {
    Json stated = Json::NewObject();
    stated.Set("kind", "classification").Set("top", top);
    Fitted fitted = MakeDecoder(stated, network);
    fitted.fit = Fit::kCover;
    fitted.labels = description.names;
    fitted.has_own_names = true;
    return fitted;
  }
  for (const char* known : {"detect", "segment", "pose", "obb"}) {
    if (task == known) return {MakeHead(task, head, network, description), Fit::kLetterbox, description.names, true};
  }
  throw Failure(Code::kInput, "results of the task '" + task + "' are not known here",
                "the network's outputs can be read as they are");
}

}  // namespace agent
