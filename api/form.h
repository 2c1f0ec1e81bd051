/* form: forms of the answer to a body with "inputs". Data; an option and a header choose the form. */
#pragma once

enum lmi_form {
    LMI_LINES,  /* a stream is lines of JSON */
    LMI_EVENTS, /* the same objects as server-sent events */
    LMI_TGI,    /* events, lists and names of TGI */
    LMI_FORMS
};
