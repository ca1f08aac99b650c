#include "vision/results.h"

#include <algorithm>

namespace agent {
namespace {

Json Described(const Point& point) { return Json(Json::Array{point.x, point.y}); }

template <typename Points>
Json DescribedAll(const Points& points) {
  Json all{Json::Array{}};
  for (const Point& each : points) all.Add(Described(each));
  return all;
}

}  // namespace

Box Around(const std::array<Point, 4>& corners) {
  Box box{corners[0].x, corners[0].y, corners[0].x, corners[0].y};
  for (const Point& each : corners) {
    box = {std::min(box.x1, each.x), std::min(box.y1, each.y), std::max(box.x2, each.x), std::max(box.y2, each.y)};
  }
  return box;
}

Json Detection::Describe() const {
  Json json = Json::NewObject({{"label", label}, {"class_id", class_id}});
  json.Set("score", score ? Json(*score) : Json());
  json.Set("box", box ? Json(Json::Array{box->x1, box->y1, box->x2, box->y2}) : Json());
  if (corners) json.Set("corners", DescribedAll(*corners));
  json.Set("points", DescribedAll(points));
  if (!point_scores.empty()) json.Set("point_scores", Json(Json::Array(point_scores.begin(), point_scores.end())));
  if (!depths.empty()) json.Set("depths", Json(Json::Array(depths.begin(), depths.end())));
  if (mask) {
    const Json counts(Json::Array(mask->counts.begin(), mask->counts.end()));
    json.Set("mask", Json::NewObject({{"size", Json(Json::Array{mask->height, mask->width})}, {"counts", counts}}));
  }
  if (surface) {
    const auto& [values, least, median, most] = *surface;
    json.Set("surface", Json::NewObject({{"minimum", least}, {"median", median}, {"maximum", most}}));
  }
  return json;
}

}  // namespace agent
