/* detect IMAGE [RELEASE]: what a network sees in an image, a PPM or PGM.
 *
 *   cc detect.c $(pkg-config --cflags --libs edgedeploy) -Wl,-rpath,'$ORIGIN' -o detect
 *   ./detect image.ppm
 */
#include <edgedeploy.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define RELEASE "retinaface" /* a model's release in use, or the path of a folder */

static int failed(const char* why) { return fprintf(stderr, "detect: %s\n", why), 1; }

/* An image without pixels if the file is none. */
static ed_image read_image(const char* path) {
  ed_image image = {0};
  int kind, width, height;
  FILE* file = fopen(path, "rb");
  if (file && fscanf(file, "P%d %d %d 255", &kind, &width, &height) == 3 && fgetc(file) != EOF) {
    const size_t pixel = kind == 5 ? 1 : 3, count = (size_t)width * height;
    void* pixels = calloc(count, pixel);
    if (pixels && fread(pixels, pixel, count, file) == count) {
      image = (ed_image){pixels, width, height, 0, kind == 5 ? ED_GRAY : ED_RGB};
    } else {
      free(pixels);
    }
  }
  if (file) fclose(file);
  return image;
}

static void print(const ed_detection* found) {
  printf("%s", found->label);
  if (!isnan(found->score)) printf(" %.6f", found->score);
  if (found->box) printf(" [%.2f %.2f %.2f %.2f]", found->box[0], found->box[1], found->box[2], found->box[3]);
  for (size_t i = 0; i < found->point_count; i++)
    printf(" (%.2f %.2f)", found->points[2 * i], found->points[2 * i + 1]);
  printf("\n");
}

int main(int count, char** words) {
  if (count < 2 || count > 3) return failed("usage: detect IMAGE [RELEASE]");
  ed_network* network;
  const ed_detection* found;
  size_t number;
  if (ed_open(count > 2 ? words[2] : RELEASE, 0, &network)) return failed(ed_error());
  const ed_image image = read_image(words[1]);
  if (!image.pixels) return failed("that is not an image");
  if (ed_detect(network, &image, &found, &number)) return failed(ed_error());
  for (size_t i = 0; i < number; i++) print(&found[i]);
  free((void*)image.pixels);
  return ed_close(network);
}
