"""Record processors of several streams as a subject: streams come, fail, go, are made anew."""
