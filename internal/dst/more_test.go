package dst

// moreStories are of scopes whose keys are rare, and of settings that are edited.
var moreStories = []*story{}
