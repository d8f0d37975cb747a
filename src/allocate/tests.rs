mod conformance;
mod derived;
mod expressions;
mod order;
