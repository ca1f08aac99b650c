// Cameras that another program reads: `rpicam-vid` that of a Raspberry Pi, `ffmpeg` a stream from the network.
#pragma once

#include <memory>
#include <string>

#include "camera/camera.h"

namespace agent {

// A camera of the Raspberry Pi by its number. Failure(kInput) if rpicam-vid (libcamera-vid, before 2024) is not there,
// or cannot give images of this size without padding their rows.
std::unique_ptr<Camera> OpenRaspberryCamera(int number, const CameraWish& wish);

// Whether there is what OpenRaspberryCamera needs.
bool HasRaspberryCamera();

// Failure(kInput) if ffmpeg is not there.
std::unique_ptr<Camera> OpenStream(const std::string& address);

}  // namespace agent
