// Finds the objects in a photo, lists them, and writes a picture of them.
//   detect_objects FOLDER PHOTO PICTURE.svg
#include <mnemo/mnemo.h>

#include <cstdio>
#include <fstream>

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::fprintf(stderr, "usage: detect_objects FOLDER PHOTO PICTURE.svg\n");
    return 2;
  }
  const mnemo::ImageObjects found = mnemo::load(argv[1]).detect(argv[2], {.threshold = 0.3, .top = 20});
  for (const mnemo::FoundObject& object : found.objects)
    std::printf("  %-16s %5.1f %%  x %.0f to %.0f, y %.0f to %.0f\n", object.label.c_str(), 100 * object.score,
                object.box[0], object.box[2], object.box[1], object.box[3]);
  std::ofstream(argv[3]) << found.svg;
  return 0;
} catch (const mnemo::InputError& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 2;
}
