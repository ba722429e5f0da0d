#include "kernels.h"
#include "simd.h"

NB_MODULE(_kernels, m) {
    m.doc() = "CPU kernels of Grendel-Odin.";
    m.attr("instruction_set") = grendel::kInstructionSet;
    grendel::register_project(m);
    grendel::register_raster(m);
    grendel::register_fold(m);
    grendel::register_loss(m);
    grendel::register_adam(m);
    grendel::register_densify(m);
    grendel::register_peak(m);
    grendel::register_cut(m);
    grendel::register_rows(m);
    grendel::register_bounds(m);
    grendel::register_pack(m);
    grendel::register_mailbox(m);
}
