#include "usage.h"

#include <algorithm>

namespace agent {
namespace {

constexpr int64_t kMost = int64_t{1} << 62;  // nothing is as many

std::vector<std::string> Texts(const Json* json) {
  std::vector<std::string> texts;
  if (!json) return texts;
  for (const Json& each : json->array()) texts.push_back(each.text());
  return texts;
}

std::vector<double> Numbers(const Json* json, size_t count, double otherwise) {
  if (!json) return std::vector<double>(3, otherwise);
  std::vector<double> numbers;
  for (const Json& each : json->array()) numbers.push_back(each.number());
  if (numbers.size() != count) throw JsonError("mean and scale need " + std::to_string(count) + " values each");
  return numbers;
}

std::string TextOr(const Json& json, const char* name, const char* otherwise) {
  const Json* found = json.find(name);
  return found ? found->text() : otherwise;
}

ImageInput ReadInput(const Json& json) {
  json.Of({"name", "shape", "kind", "layout", "colour", "mean", "scale"});
  ImageInput input{{}, TextOr(json, "layout", "NCHW"), TextOr(json, "colour", "RGB"), {}, {}};
  const size_t channels = input.colour == "GRAY" ? 1 : 3;
  input.mean = Numbers(json.find("mean"), channels, 0);
  input.scale = Numbers(json.find("scale"), channels, 1);
  return input;
}

// A whole number above zero, of any size in Python.
int64_t Count(const Json& json) {
  const double count = json.number();
  if (!(count >= 1)) throw JsonError("a number that is not above zero");
  return static_cast<int64_t>(std::min(count, static_cast<double>(kMost)));
}

CameraFormat ReadCamera(const Json& json) {
  const CameraFormat camera{Count(json.Of({"width", "height", "pixels"}).at("width")), Count(json.at("height")), json.at("pixels").text()};
  if (std::max(camera.width, camera.height) > kLongestSide) throw JsonError("an impossible side of a frame");
  return camera;
}

double Side(const Json& json) {
  const double side = json.number();
  if (!(side > 0)) throw JsonError("a side that is not above zero");
  return side;
}

std::pair<double, double> Sides(const Json& json) {
  if (json.array().size() != 2) throw JsonError("an anchor has a width and a height");
  return {Side(json.array()[0]), Side(json.array()[1])};
}

}  // namespace

Usage ReadUsage(const Json& json) {
  json.Of({"demo", "stage", "input", "fit", "decoder", "log", "outputs", "labels", "camera"});
  Usage usage;
  usage.demo = json.at("demo").text();
  const Json* stage = json.find("stage");
  usage.stage = stage ? Count(*stage) : 1;
  usage.input = ReadInput(json.at("input"));
  const Json& fit = json.at("fit");
  usage.fit = fit.is_object() ? fit.at("kind").text() : fit.text();
  usage.decoder = json.at("decoder");
  usage.decoder.at("kind").text();
  usage.log = json.at("log").text();
  usage.outputs = Texts(json.find("outputs"));
  usage.labels = Texts(json.find("labels"));
  if (const Json* camera = json.find("camera"); camera && !camera->is_null()) {
    usage.camera = ReadCamera(*camera);
    for (const Json& size : json.at("input").at("shape").array()) usage.input.shape.push_back(Count(size));
  }
  return usage;
}

Head ReadHead(const Json& json) {
  json.Of({"output", "kind", "anchors", "classes", "scale_x_y"});
  const std::string kind = TextOr(json, "kind", "yolo");
  if (kind != "yolo" && kind != "region") throw JsonError("'" + kind + "' is not a kind of head");
  Head head{json.at("output").text(), kind == "region", {}, {}, 1.0};
  for (const Json& each : json.at("anchors").array()) head.anchors.push_back(Sides(each));
  if (head.anchors.empty()) throw JsonError("a head has no anchors");
  if (const Json* classes = json.find("classes"); classes && !classes->is_null()) {
    head.classes = Count(*classes);
  }
  if (const Json* scale = json.find("scale_x_y")) head.scale_x_y = Side(*scale);
  return head;
}

}  // namespace agent
