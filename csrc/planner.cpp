#include "planner.h"

NB_MODULE(_planner, m) {
    m.doc() = "Hot loops of Odin's planner.";
    grendel::register_overlap(m);
    grendel::register_order(m);
}
