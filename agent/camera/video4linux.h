// Cameras of Video4Linux: webcams, and other devices that the kernel lists as /dev/videoN.
#pragma once

#include <memory>
#include <string>

#include "camera/camera.h"

namespace agent {

// Opens a device and starts it. Failure(kInput) if there is none, it may not be used, another program uses it, or it
// gives no images of a kind that is known here: MJPEG, YUYV, NV12 and YU12.
std::unique_ptr<Camera> OpenVideo4Linux(const std::string& device, const CameraWish& wish);

// The first device that gives such images by itself; empty if there is none. What only gives what a sensor's raw
// pixels were made into by others, as beside a Raspberry Pi's camera, does not count.
std::string FindVideo4Linux();

}  // namespace agent
