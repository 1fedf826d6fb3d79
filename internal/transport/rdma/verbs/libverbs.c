#include "libverbs.h"

struct p2p_verbs_functions ibv;

P2P_LIBRARY(p2p_verbs_library, ibv, VERBS_REQUIRED, VERBS_OPTIONAL);
